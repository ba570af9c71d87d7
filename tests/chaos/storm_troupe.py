"""The processes of the storm. Each process that dies is replaced at once, as Ray Serve would do."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from dyorc.transport.arena_file import sweep
from tests.chaos.storm_process import MODULE, ORCHESTRATOR, Part
from tests.deadlines import TIMEOUT_S
from tests.shared_folders import shared_folder

ROLES = {
    "producer": "make", "middle": "mix", "consumer": "check", "source": "recite", "reader": "stir", ORCHESTRATOR: ORCHESTRATOR,
}  # fmt: skip
"""Each replica's name in the report, and its program."""

_REPOSITORY = Path(__file__).parents[2]
_POLL_S = 0.01
_NUM_SPARES = 2
_LOG_TAIL_BYTES = 4000


@dataclass
class Actor:
    """A process with a part. `may_end` is set before it is killed."""

    role: str
    process: "subprocess.Popen[bytes]"
    log: Path
    may_end: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def tail(self) -> str:
        """Returns the last line that it printed."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")


class Troupe:
    """The processes; it runs while entered.

    Args:
        num_replicas: Of each program.
        arena_bytes: Size of each process's arena.
    """

    def __init__(self, num_replicas: int, arena_bytes: int) -> None:
        self._num_replicas = num_replicas
        self._arena_bytes = arena_bytes
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._cast: list[Actor] = []
        self._spares: list[Actor] = []
        self._watcher = threading.Thread(target=self._watch, name="storm-watcher")
        self.surprises: list[str] = []
        self.outage = 0
        self.is_orchestrator_up = False

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dyorc-storm-")))
            self.arena_folder = stack.enter_context(shared_folder())
            # Bound and never listening: it keeps the port ours while there is no orchestrator.
            reserved = stack.enter_context(socket.socket())
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("127.0.0.1", 0))
            self._port: int = reserved.getsockname()[1]
            self.url = f"http://127.0.0.1:{self._port}"
            self._control = stack.enter_context(httpx.Client(base_url=self.url, timeout=TIMEOUT_S, trust_env=False))
            stack.callback(self._end_all)
            for role in (ORCHESTRATOR, *list(ROLES.values())[:-1] * self._num_replicas):
                self._cast.append(self._start(role))
            self._watcher.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _end_all(self) -> None:
        self._stopping.set()
        if self._watcher.ident is not None:
            self._watcher.join()
        for actor in (*self._cast, *self._spares):
            actor.process.kill()  # ends a stopped one, too
        for actor in (*self._cast, *self._spares):
            actor.process.wait()
            if actor.process.stdin is not None:
                actor.process.stdin.close()
        sweep(self.arena_folder)

    # Processes

    def _spawn(self) -> Actor:
        log = self.folder / f"log-{next(self._numbers)}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULE], cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=file, stderr=file
            )
        return Actor("", process, log)

    def _start(self, role: str) -> Actor:
        """Assigns a part to a process that has imported everything already, if there is one."""
        actor = self._spares.pop(0) if self._spares else self._spawn()
        actor.role = role
        part = Part(
            role, f"{role}-{actor.log.name}", f"unix://{self.folder}/link", self._port, self.arena_folder, self._arena_bytes
        )
        assert actor.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died as a spare; the watcher will see
            actor.process.stdin.write(msgspec.json.encode(part) + b"\n")
            actor.process.stdin.flush()
        return actor

    def _watch(self) -> None:
        while not self._stopping.wait(_POLL_S):
            with self._lock:
                for at, actor in enumerate(self._cast):
                    if not actor.is_alive:
                        self._bury(actor)
                        self._cast[at] = self._start(actor.role)
                if len(self._spares) < _NUM_SPARES:
                    self._spares.append(self._spawn())

    def _bury(self, actor: Actor) -> None:
        if actor.process.stdin is not None:
            actor.process.stdin.close()
        if not actor.may_end:
            self.surprises.append(f"{actor.role} {actor.pid} ended by itself, {actor.process.returncode}: {actor.tail()}")
        elif actor.role != ORCHESTRATOR:
            actor.log.unlink()

    def pids(self) -> list[int]:
        """Returns the process ids of all that have a part."""
        with self._lock:
            return [actor.pid for actor in self._cast if actor.is_alive]

    def pick(self, role: str, at: int) -> Actor:
        """Returns one of those with a part."""
        with self._lock:
            able = [actor for actor in self._cast if actor.role == ROLES[role]]
            return able[at % len(able)]

    def kill(self, actor: Actor) -> None:
        """Sends SIGKILL."""
        actor.may_end = True
        if actor.role == ORCHESTRATOR:
            self.is_orchestrator_up = False
            self.outage += 1
        actor.process.kill()

    def stop(self, actor: Actor) -> None:
        """Sends SIGSTOP. The orchestrator may end the process for that."""
        actor.may_end = True
        os.kill(actor.pid, signal.SIGSTOP)

    def go_on(self, actor: Actor) -> None:
        """Sends SIGCONT, if the process still exists."""
        if actor.is_alive:
            os.kill(actor.pid, signal.SIGCONT)

    # The orchestrator's view

    def report(self) -> dict[str, Any] | None:
        """Returns the orchestrator's report; None if it does not answer."""
        try:
            return self._control.get("/storm").json()
        except (httpx.TransportError, ValueError):
            return None

    def wait_until_complete(self, but: set[int], timeout_s: float) -> bool:
        """Waits until the orchestrator knows all replicas that live, and none of `but`; False if it does not in time."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            report = self.report()
            with self._lock:
                pids = {actor.pid for actor in self._cast if actor.is_alive}
                is_whole = len(pids) == len(self._cast)
            if is_whole and report is not None and {report["pid"], *report["replica_pids"]} == pids and not but & pids:
                self.is_orchestrator_up = True
                return True
            time.sleep(_POLL_S)
        return False

    def logs(self) -> Sequence[str]:
        """Returns the last output of all living processes, for people."""
        with self._lock:
            return [f"{actor.role} {actor.pid}: {actor.tail()}" for actor in self._cast]
