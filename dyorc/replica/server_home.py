"""The folder of a server that has its own Ray, and how it is cleared up: by the server when it stops, and after it was killed by
its fork server, or else by the next server on this machine. Linux; no Ray here.
"""

import contextlib
import os
import re
import signal
from pathlib import Path

from dyorc.system.owned_folder import remove_orphan

TOKEN_VARIABLE = "RAY_AUTH_TOKEN_PATH"
"""The variable that names a file in the folder to all of Ray's processes."""
_OF_RAY = re.compile(rb"ray::|[^\0]*\0(?:-[^\0]*\0)*[^\0]*/ray/(?:dashboard|_private)/|[^\0]*/ray/core/src/")
"""How the commands of Ray's own processes begin: by their title, and until they have set it, for seconds on a busy machine, by
the file of Ray's that runs. Processes that the user's code has started are left alone."""


def token_path(folder: str) -> str:
    """Returns where Ray's token is."""
    return os.path.join(folder, "token")


def clear_up(folder: str) -> None:
    """Ends Ray's processes of a server that has ended, and removes its folder. Does nothing while the folder is locked.

    Most of Ray's processes end with the server. Its agents do not: they first spend a minute on reporting that. Nor do they end
    with a Ray that is stopped while they start.
    """
    remove_orphan(folder, lambda: _end_processes(f"{TOKEN_VARIABLE}={token_path(folder)}"))


def _end_processes(variable: str) -> None:
    """Kills Ray's processes that have this in their environment."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone, or belongs to another user
            process = os.pidfd_open(int(path.name))
            try:
                is_of_ray = _OF_RAY.match((path / "cmdline").read_bytes())
                if is_of_ray and os.fsencode(variable) in (path / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)
