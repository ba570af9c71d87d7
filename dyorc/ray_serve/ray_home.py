"""Prepares our own Ray, before it is imported: its folder, its environment, and this machine's fork server.

The fork server imports torch while this process does, on another core.
"""

import os
import secrets
import shutil
import tempfile
from dataclasses import replace
from types import TracebackType
from typing import Self

from dyorc.errors import ConfigurationError
from dyorc.replica.assignment import ForkServerSpec
from dyorc.replica.fork_client import ForkClient
from dyorc.replica.server_home import TOKEN_VARIABLE, clear_up, token_path
from dyorc.system.owned_folder import lock, orphans

_FOLDER_PREFIX = "dyorc-"
_MAX_SOCKET_PATH = 107
"""Bytes of a Unix socket's path, without the zero at its end (``sun_path`` in unix(7))."""
_LONGEST_SOCKET = "dyorc-12345678/ray/session_2026-01-01_00-00-00_000000_{}/sockets/plasma_store"
"""The longest path of a socket below the folder for temporary files, as `tempfile` and Ray name things; {} is a process id."""


class RayHome:
    """A folder that only this user can enter, and Ray's settings in the environment, while entered.

    Ray reads most of its settings when it is imported, and a user's module may import it: enter this before any is loaded.
    """

    def __init__(self) -> None:
        self._lock: int | None = None
        self._environment: list[str] = []
        self.folder = ""

    def __enter__(self) -> Self:
        """Makes the folder.

        Raises:
            ConfigurationError: If the paths of Ray's sockets there would be longer than the system allows.
        """
        _check_length(tempfile.gettempdir())
        _remove_orphans()
        self.folder = tempfile.mkdtemp(prefix=_FOLDER_PREFIX)
        try:
            self._lock = lock(self.folder)
            self._set_environment()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for name in self._environment:
            del os.environ[name]
        self._environment.clear()
        if self._lock is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        os.close(self._lock)
        self._lock = None
        clear_up(self.folder)

    def _set_environment(self) -> None:
        """Sets what Ray and its processes read from the environment; the user's own settings are kept."""
        token = token_path(self.folder)
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        for name, value in (
            ("RAY_USAGE_STATS_ENABLED", "0"),
            # Ray's own default, 15, puts replicas behind everything else on the machine.
            ("RAY_worker_niceness", "0"),
            # At ten times per second, Serve's controller uses a tenth of a core to find that nothing has changed.
            ("RAY_SERVE_CONTROL_LOOP_INTERVAL_S", "0.5"),
            # Ray starts its processes while gRPC serves, which would log that it is not prepared for forks. None stays a fork.
            ("GRPC_ENABLE_FORK_SUPPORT", "0"),
            # Without a path of our own, Ray leaves its token in the user's home.
            ("RAY_AUTH_MODE", "token"),
            (TOKEN_VARIABLE, token),
        ):
            if name not in os.environ:
                os.environ[name] = value
                self._environment.append(name)


def _check_length(folder: str) -> None:
    longest = _LONGEST_SOCKET.format(os.getpid())
    num_bytes, most = len(os.fsencode(folder)), _MAX_SOCKET_PATH - len(longest) - 1
    if num_bytes > most:
        raise ConfigurationError(
            f"the folder for temporary files, {folder}, has a path of {num_bytes} bytes, and the paths of Ray's sockets below it "
            f"would be longer than the {_MAX_SOCKET_PATH} that the system allows; set TMPDIR to a path of at most {most} bytes, "
            f"for example /tmp"
        )


def _remove_orphans() -> None:
    """Removes the folders of servers that were killed."""
    for folder in orphans(_FOLDER_PREFIX):
        clear_up(folder)


class HeadStart:
    """Entered before any of the user's modules is imported; left after everything else has ended.

    Attributes:
        home: Where Ray keeps its files.
        forks: A client of this machine's fork server. The code that forks replicas with it closes it.
        place: The fork server, for other clients.
    """

    def __init__(self) -> None:
        self.home = RayHome()

    def __enter__(self) -> Self:
        self.home.__enter__()
        self.place = ForkServerSpec(folder=f"{self.home.folder}/forks", home=self.home.folder)
        self.forks = ForkClient(self.place)
        try:
            self.forks.open()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def preload(self, libraries: tuple[str, ...]) -> None:
        """Makes the fork server import what the user's modules have imported here."""
        self.place = replace(self.place, modules=libraries)
        self.forks.preload(list(libraries))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.forks.close()
        self.home.__exit__(kind, error, trace)
