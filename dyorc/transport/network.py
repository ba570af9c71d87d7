"""What a process needs to talk to other nodes, and the wire tiers built on it."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from dyorc.config import TransportConfig
from dyorc.errors import TransportError
from dyorc.transport.tiers import BlockSource, TensorTier
from dyorc.transport.zmq_security import ClusterKeys
from dyorc.transport.zmq_tensors import ZmqTensorServer, ZmqTier


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecrets:
    """Keys by which the processes of a cluster recognize each other. Made at its start, and passed to each.

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
        """Returns the keys of a seed: always the same ones, as hard to guess as the seed."""
        secret, token = (blake2b(seed.encode(), digest_size=32, person=use).digest() for use in (b"dyorc curve", b"dyorc token"))
        return cls(keys=ClusterKeys.of(secret), token=token.hex())


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNetwork:
    """A process's place in a cluster of several nodes.

    Attributes:
        host: This node's address, as other nodes reach it.
        secrets: The cluster's.
    """

    host: str
    secrets: ClusterSecrets


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
