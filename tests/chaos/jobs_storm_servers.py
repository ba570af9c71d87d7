"""The servers of the jobs' storm, each with a replica that outlives it. Each killed server is replaced by another."""

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import msgspec

from dyorc.transport.arena_file import sweep
from tests.chaos.jobs_storm_process import MODULE, Part
from tests.deadlines import TIMEOUT_S, wait_until
from tests.integration.stack import FAST_TRANSPORT
from tests.workflows import effects

_REPOSITORY = Path(__file__).parents[2]
_LOG_TAIL_CHARS = 3000


class Servers:
    """Runs servers on the same store while entered.

    Args:
        rest: More fields of each server's `Part`.

    Attributes:
        urls: Where they listen; the same after a kill as before.
    """

    def __init__(self, num_servers: int, store: str, **rest: Any) -> None:
        self._num = num_servers
        self._store = store
        self._rest = rest

    def __enter__(self) -> "Servers":
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dyorc-j-")))
            stack.callback(sweep, FAST_TRANSPORT.arena_folder)
            self._parts = [self._part(stack, at) for at in range(self._num)]
            self.urls = [f"http://127.0.0.1:{part.port}" for part in self._parts]
            self._client = stack.enter_context(httpx.Client(timeout=TIMEOUT_S, trust_env=False))
            self._processes: list[subprocess.Popen[bytes]] = []
            stack.callback(self._end_all)
            for part in self._parts:
                program = effects.noted_program
                target = f"{effects.__file__}:{effects.noted.name}"
                self._spawn("tests.integration.replica_process", target, program.name, part.address, f"replica-{part.port}")
            self._spare = self._spawn(MODULE)
            self._servers = [self._start(part) for part in self._parts]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _part(self, stack: contextlib.ExitStack, at: int) -> Part:
        # Bound and never listening: it keeps the port ours while there is no server.
        reserved = stack.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        return Part(reserved.getsockname()[1], f"unix://{self.folder}/link-{at}", self._store, **self._rest)

    def _spawn(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments], cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        self._processes.append(process)
        return process

    def _start(self, part: Part) -> "subprocess.Popen[bytes]":
        """Assigns the part to a process that has imported everything already, and starts another one."""
        process, self._spare = self._spare, self._spawn(MODULE)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(part) + b"\n")
        process.stdin.flush()
        return process

    def _end_all(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def wait_until_up(self, at: int) -> None:
        """Returns when a server answers."""
        try:
            wait_until(lambda: self._is_up(at), "the server answers")
        except AssertionError as error:
            raise AssertionError(f"{error}; the processes said {self.log()}") from None

    def _is_up(self, at: int) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self._client.get(f"{self.urls[at]}/v2/health/live").is_success
        return False

    def kill(self, at: int) -> float:
        """Sends SIGKILL and starts the next server in its place. Returns the seconds until that one answers."""
        started_s = time.monotonic()
        self._servers[at].kill()
        self._replace(at)
        return time.monotonic() - started_s

    def end(self, at: int) -> None:
        """Ends a server in order, as SIGTERM does, and starts the next one in its place."""
        self._servers[at].terminate()
        self._replace(at)

    def _replace(self, at: int) -> None:
        self._servers[at].wait(TIMEOUT_S)
        self._servers[at] = self._start(self._parts[at])
        self.wait_until_up(at)

    @contextlib.contextmanager
    def frozen(self, at: int) -> Generator[None]:
        """Stops a server's process for the block: it does nothing, and then goes on as if no time had passed."""
        process = self._servers[at]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        """Returns the last output of all processes, for people."""
        return (self.folder / "log").read_text(errors="replace")[-_LOG_TAIL_CHARS:]


@contextlib.contextmanager
def servers(num_servers: int, store: str, **rest: Any) -> Generator[Servers]:
    """Starts servers and yields them once they answer.

    Args:
        rest: More fields of each server's `Part`.
    """
    with Servers(num_servers, store, **rest) as found:
        for at in range(num_servers):
            found.wait_until_up(at)
        yield found
