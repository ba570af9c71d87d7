"""The folder of a node's fork server: its socket, those of its replicas, and their log. Only this user can enter it.

server      the fork server listens here
KEY-ID      a replica listens here for its owners; KEY identifies its program
member.ID   a member of a group listens here for the replica that leads it, once
ranks.ID    where the members of a group meet
log         what the fork server and its replicas print
starting    locked while a fork server is started, or the folder removed
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import zlib
from collections.abc import Generator
from pathlib import Path

from dyorc.errors import TransportError

_LOG_TAIL_BYTES = 2000


def server_path(folder: str) -> str:
    """Returns where the fork server listens."""
    return os.path.join(folder, "server")


def new_replica_path(folder: str, key: str) -> str:
    """Returns where a new replica should listen. `key` identifies its program."""
    return os.path.join(folder, f"{_short(key)}-{secrets.token_hex(4)}")


def new_member_path(folder: str) -> str:
    """Returns where a new member of a group should listen. Only its leader looks there."""
    return os.path.join(folder, f"member.{secrets.token_hex(4)}")


def replica_paths(folder: str, key: str = "") -> list[str]:
    """Returns where replicas listen or have listened: those of one program, or all."""
    return sorted(str(path) for path in Path(folder).glob(f"{_short(key)}-*" if key else "*-*"))


def log_path(folder: str) -> str:
    """Returns where the fork server and its replicas print."""
    return os.path.join(folder, "log")


def last_line(folder: str) -> str:
    """Returns the last line that was printed."""
    try:
        lines = Path(log_path(folder)).read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


@contextlib.contextmanager
def locked(folder: str) -> Generator[None]:
    """Makes the folder if need be; while entered, no other process starts a fork server there or removes it.

    Raises:
        TransportError: If other users can enter the folder.
    """
    path = os.path.join(folder, "starting")
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        status = os.stat(folder)
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise TransportError(f"other users can enter the folder {folder!r}; no replicas are started in it")
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                break
            os.close(descriptor)
    try:
        yield
    finally:
        os.close(descriptor)


def remove(folder: str, inode: int) -> None:
    """Removes the folder, unless another process is about to use it, or has started another fork server.

    Args:
        inode: The socket's, of the fork server that ends. The socket must still be open, or its number may be in use again.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.join(folder, "starting"), os.O_WRONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(server_path(folder)).st_ino == inode:
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _short(name: str) -> str:
    """Returns a name's checksum: paths of sockets are limited to 107 bytes."""
    return f"{zlib.crc32(name.encode()):08x}"
