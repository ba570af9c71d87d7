"""How a process reaches other nodes: the cluster's keys, also in a file, and the tiers that use them.

A user who can read the file of keys can do everything that a process of the cluster can. `dyorc cluster-keys` makes one. A source
that has only random text, such as a Helm chart, writes ``{"seed": "TEXT"}``, from which all processes derive the same keys.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import msgspec

from dyorc.config import TransportConfig
from dyorc.errors import ConfigurationError, TransportError
from dyorc.transport.tiers import BlockSource, TensorTier
from dyorc.transport.zmq_security import ClusterKeys
from dyorc.transport.zmq_tensors import ZmqTensorServer, ZmqTier


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecrets:
    """Keys by which the processes of a cluster recognize each other. Made when it starts, and passed to each process.

    Attributes:
        keys: For ZeroMQ.
        token: For gRPC.
    """

    keys: ClusterKeys
    token: str = field(repr=False)

    @classmethod
    def generate(cls) -> "ClusterSecrets":
        """Makes new ones."""
        return cls(keys=ClusterKeys.generate(), token=secrets.token_hex(32))

    @classmethod
    def of(cls, seed: str) -> "ClusterSecrets":
        """Returns the keys for a seed: always the same ones, as hard to guess as the seed."""
        secret, token = (blake2b(seed.encode(), digest_size=32, person=use).digest() for use in (b"dyorc curve", b"dyorc token"))
        return cls(keys=ClusterKeys.of(secret), token=token.hex())


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNetwork:
    """How a process takes part in a cluster of several nodes.

    Attributes:
        host: This node's address for other nodes.
        secrets: The cluster's keys.
    """

    host: str
    secrets: ClusterSecrets


LOCAL_NODE = "local"
"""The name of this machine where there is no other."""


def node_name(network: NodeNetwork | None) -> str:
    """Returns the name of this machine, for holders of tensors."""
    return LOCAL_NODE if network is None else network.host


def serve_tensors(network: NodeNetwork, source: BlockSource, config: TransportConfig, stack: ExitStack) -> tuple[str, str]:
    """Lets other nodes read a process's arena until `stack` is closed.

    Returns:
        Where they find it, by ZeroMQ and by gRPC; the latter is empty if gRPC is off.

    Raises:
        TransportError: If an address cannot be listened on.
    """
    zmq_address = stack.enter_context(ZmqTensorServer(source, network.host, config, network.secrets.keys)).address
    if not config.grpc:
        return zmq_address, ""
    from dyorc.transport.grpc_tensors import Endpoint, GrpcTensorServer  # slow to import

    tls = None
    if config.grpc_certificate_file:
        tls = (_read(config.grpc_certificate_file), _read(config.grpc_key_file))
    endpoint = Endpoint(network.host, tls=tls, allow_insecure=config.grpc_allow_insecure)
    server = GrpcTensorServer(source, endpoint, config, network.secrets.token)
    return zmq_address, stack.enter_context(server).address


def wire_tiers(network: NodeNetwork, config: TransportConfig) -> Iterator[TensorTier]:
    """Yields the tiers to other nodes, for one thread."""
    yield ZmqTier(config, network.secrets.keys)
    if config.grpc:
        from dyorc.transport.grpc_tensors import GrpcTier

        roots = _read(config.grpc_roots_file) if config.grpc_roots_file else None
        yield GrpcTier(config, network.secrets.token, roots, allow_insecure=config.grpc_allow_insecure)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TransportError(f"{path!r} cannot be read: {error}") from error


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    public: str
    secret: str
    token: str


class _Seed(msgspec.Struct, forbid_unknown_fields=True):
    seed: Annotated[str, msgspec.Meta(min_length=32)]


def write_new_keys(path: Path) -> None:
    """Makes new keys, in a file that only this user can read.

    Raises:
        ConfigurationError: If the file exists, or cannot be written.
    """
    secrets = ClusterSecrets.generate()
    content = _Content(secrets.keys.public.decode(), secrets.keys.secret.decode(), secrets.token)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigurationError(
            f"{str(path)!r} exists and was not changed: processes with its keys would no longer be admitted; "
            "remove it first to get new keys"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"cluster keys cannot be written to {str(path)!r}: {error.strerror}") from error
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def read_keys(path: str) -> ClusterSecrets:
    """Reads a cluster's keys.

    Raises:
        ConfigurationError: If the file cannot be read, or holds something else. The text shows nothing of what is in it.
    """
    try:
        return _secrets(msgspec.json.decode(Path(path).read_bytes(), type=dict[str, str]))
    except OSError as error:
        raise ConfigurationError(f"the cluster's keys cannot be read from {path!r}: {error.strerror}") from error
    except (msgspec.DecodeError, TransportError, ValueError):
        raise ConfigurationError(
            f"{path!r} does not hold a cluster's keys: expected the file that `dyorc cluster-keys` has written, or a seed of 32 "
            "characters or more"
        ) from None


def _secrets(content_of_file: dict[str, str]) -> ClusterSecrets:
    if "seed" in content_of_file:
        return ClusterSecrets.of(msgspec.convert(content_of_file, _Seed).seed)
    content = msgspec.convert(content_of_file, _Content)
    return ClusterSecrets(keys=ClusterKeys(content.public.encode(), content.secret.encode()), token=content.token)
