"""The folder of a server that has its own Ray, and how it is cleared up after the server was killed. Linux; no Ray here.

The server locks a file in it for as long as it lives, so a process that can lock the file knows that the server is gone. Its fork
server clears up, or else the next server on this machine.
"""

import contextlib
import fcntl
import os
import shutil
import signal
from pathlib import Path

TOKEN_VARIABLE = "RAY_AUTH_TOKEN_PATH"
"""The variable that names a file in the folder to all of Ray's processes."""
_LOCK = "lock"
_OF_RAY = b"ray::"
"""How the commands of Ray's own processes begin. Processes that the user's code has started are left alone."""


def token_path(folder: str) -> str:
    """Returns where Ray's token is."""
    return os.path.join(folder, "token")


def lock(folder: str) -> int:
    """Marks a folder as owned for as long as this process lives; returns the lock's descriptor."""
    path = os.path.join(folder, _LOCK)
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(f"{path}.new", path)  # from now on others may check whether it is locked
    return descriptor


def clear_up(folder: str) -> None:
    """Ends Ray's processes of a server that was killed, and removes its folder. Does nothing while the server lives.

    Most of Ray's processes end with the server. Its agents do not: they first spend a minute on reporting that.
    """
    with contextlib.suppress(OSError):  # it is locked, belongs to another user, or is gone
        descriptor = os.open(os.path.join(folder, _LOCK), os.O_WRONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _end_processes(f"{TOKEN_VARIABLE}={token_path(folder)}")
            shutil.rmtree(folder)
        finally:
            os.close(descriptor)


def _end_processes(variable: str) -> None:
    """Kills Ray's processes that have this in their environment."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone, or belongs to another user
            process = os.pidfd_open(int(path.name))
            try:
                is_of_ray = (path / "cmdline").read_bytes().startswith(_OF_RAY)
                if is_of_ray and os.fsencode(variable) in (path / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)
