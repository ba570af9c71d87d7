"""A real `dyorc serve` in a process of its own, on a free port, with temporary files in a folder of its own."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import psutil

from tests.deadlines import wait_until

_MARK = "TEST_SERVER_ID"
_WORKFLOWS = Path(__file__).parent / "workflows"
COMMAND = str(Path(sys.executable).with_name("dyorc"))

READY_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0


def target(file: str, name: str) -> str:
    """One of the tests' workflows, as the command line names it."""
    return f"{_WORKFLOWS / file}.py:{name}"


class ServerProcess:
    """`dyorc serve --verbose` while it is entered; killed at the end if it still runs.

    Its processes carry a mark in their environment, so that all of them are found, whoever their parent is by then.

    Attributes:
        command: What stands in for `dyorc`; may be set before it is entered.
    """

    def __init__(self, targets: Sequence[str], **environment: str) -> None:
        self._targets = targets
        self._environment = environment
        self._id = uuid.uuid4().hex
        self.command = [COMMAND]
        self.lines: list[str] = []

    def __enter__(self) -> "ServerProcess":
        # Short: the path of a Unix socket has at most 107 characters, and Ray makes long ones.
        self.folder = Path(tempfile.mkdtemp(prefix="t-"))
        self._state_folder = tempfile.mkdtemp(prefix="s-")  # apart: what is in it is meant to stay
        self._shared_memory = _shared_memory()
        environment = {**os.environ, "TMPDIR": str(self.folder), "XDG_STATE_HOME": self._state_folder, "COLUMNS": "1000"}
        environment |= {_MARK: self._id, **self._environment}
        self.process = subprocess.Popen(
            [*self.command, "serve", *self._targets, "--port", "0", "--verbose"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.tree(), "its processes end", 10)
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self._state_folder, ignore_errors=True)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def output(self) -> str:
        """All that it has printed."""
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, timeout_s: float = READY_TIMEOUT_S) -> re.Match[str]:
        """The first match of a line that it prints or has printed.

        Raises:
            AssertionError: If none comes in time, or the server ends; shows what it did print.
        """
        found: list[re.Match[str]] = []

        def look() -> bool:
            found.extend(match for line in list(self.lines) if (match := re.search(pattern, line)))
            return bool(found) or self.process.poll() is not None

        try:
            wait_until(look, f"a line like {pattern}", timeout_s)
            assert found, f"the server ended before a line like {pattern}"
        except AssertionError as error:
            raise AssertionError(f"{error}; it printed:\n{self.output}") from None
        return found[0]

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.wait_for(r"Listening on (https?://\S+)")[1]

    def client(self, timeout_s: float = 60.0) -> httpx.Client:
        """A client of this server."""
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
        return httpx.Client(base_url=self.url, timeout=timeout_s, limits=limits, trust_env=False)

    def wait_until_ready(self) -> float:
        """Waits until every program has a replica; gives the seconds that the server says it took."""
        return float(self.wait_for(r"Ready after ([\d.]+) s")[1])

    def replica_pids(self, program: str) -> list[int]:
        """Processes of a program's replicas that are alive, the oldest first."""
        found = re.findall(rf"replica_joined\s.*?\bpid=(\d+) program={re.escape(program)} ", self.output)
        return [int(pid) for pid in dict.fromkeys(found) if psutil.pid_exists(int(pid))]

    def tree(self) -> list[psutil.Process]:
        """All living processes of this server, its Ray included."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == self._id:
                    found.append(process)
        return found

    def stop(self, number: signal.Signals = signal.SIGINT, *, is_from_terminal: bool = False) -> float:
        """Sends a signal and waits until it has ended. Returns the seconds that took.

        Args:
            is_from_terminal: Whether all its processes get the signal, as Ctrl-C does it.

        Raises:
            AssertionError: If it does not end in time.
        """
        started_s = time.monotonic()
        if is_from_terminal:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        self.wait()
        return time.monotonic() - started_s

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Waits until it has ended and all that it printed is in `lines`.

        Raises:
            AssertionError: If it does not end in time.
        """
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s; it printed:\n{self.output}") from None
        self._reader.join(timeout_s)

    def leftovers(self, timeout_s: float = 10.0) -> list[str]:
        """What an ended server has left behind: processes, shared memory, files. What goes away in time does not count."""
        deadline_s = time.monotonic() + timeout_s
        while (left := self._leftovers()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return left

    def _leftovers(self) -> list[str]:
        processes = [f"process {process.pid} {_command(process)}" for process in self.tree()]
        files = [f"file {path}" for path in sorted(self.folder.iterdir())]
        shared = [f"shared memory {name}" for name in sorted(_shared_memory() - self._shared_memory) if not _is_in_use(name)]
        return [*processes, *files, *shared]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:120]
    except psutil.Error:
        return "(gone)"


def _shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()} if Path("/dev/shm").is_dir() else set()


def _is_in_use(name: str) -> bool:
    """Whether a living process maps it: then it belongs to another server, since all processes of ours are looked for anyway."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if f"/dev/shm/{name}" in maps.read_text():
                return True
    return False


@contextlib.contextmanager
def serving(targets: Sequence[str], **environment: str) -> Iterator[ServerProcess]:
    """A server that is ready."""
    with ServerProcess(targets, **environment) as server:
        server.wait_until_ready()
        yield server
