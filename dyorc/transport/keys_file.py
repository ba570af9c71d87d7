"""A cluster's keys in a file, so that all its processes have the same ones, also after they were started again.

Whoever can read the file can do everything that a process of the cluster can. `dyorc cluster-keys` makes one. Who has nothing but
random text, as a Helm chart, writes ``{"seed": "TEXT"}``, from which all processes derive the same keys.
"""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from dyorc.errors import ConfigurationError, TransportError
from dyorc.transport.network import ClusterSecrets
from dyorc.transport.zmq_security import ClusterKeys


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
            f"{str(path)!r} exists and is left as it is: processes that have its keys would no longer be let in; "
            "remove it first to have new ones"
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
