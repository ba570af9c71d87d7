"""Processes of replicas: what forks them and what watches them talk over virtual lines; what runs in them is the real code."""

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from dyorc.authoring.program import Program
from dyorc.errors import text_of
from dyorc.replica import forked_process, session, worker
from dyorc.replica.assignment import ProgramSource, ReplicaAssignment
from dyorc.replica.fork_client import ReplicaHandle
from dyorc.transport.peer_process import PeerEnding, ending_of
from tests.whole_server.dealer_link import VirtualWakeUp
from tests.whole_server.world import ProcessState, VirtualProcess, VirtualThread, World, current_thread

_LINE_S = 100e-6
_FORK_S = 0.05
_SLOW_RATIO, _SLOW_S = 0.1, 3.0
"""How often a process takes long to start, and how long at most."""

Message = Mapping[str, Any]

TROUBLES: list[str] = []
"""What replicas have said is wrong with them."""


class VirtualLine:
    """One end of a line of messages within a machine. Blocking; see `dyorc.system.json_lines.JsonLineSocket`."""

    peer: "VirtualLine"

    def __init__(self, world: World) -> None:
        self._world = world
        self._messages: deque[Message | None] = deque()
        self._waiting: VirtualThread | None = None
        self._is_closed = False

    @classmethod
    def pair(cls, world: World) -> tuple["VirtualLine", "VirtualLine"]:
        """Returns both ends of a new line."""
        near, far = cls(world), cls(world)
        near.peer, far.peer = far, near
        return near, far

    def send(self, kind: str, **content: Any) -> None:
        """See `JsonLineSocket.send`."""
        if not self._is_closed:
            self._world.call_later(_LINE_S, lambda: self.peer.take({"kind": kind, **content}))

    def close(self) -> None:
        """Hangs up."""
        if not self._is_closed:
            self._is_closed = True
            self._world.call_later(_LINE_S, lambda: self.peer.take(None))

    def take(self, message: Message | None) -> None:
        """Takes a message from the other end; None: it has hung up."""
        self._messages.append(message)
        if self._waiting is not None:
            self._world.wake(self._waiting)

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """See `JsonLineSocket.receive`."""
        until_ns = None if timeout_s is None else self._world.now_ns + int(timeout_s * 1e9)
        while not self._messages:
            self._waiting = current_thread()
            is_woken = self._world.park(until_ns)
            self._waiting = None
            if not is_woken:
                raise TimeoutError
        if self._messages[0] is None:
            return None
        return self._messages.popleft()


class WatchedProcess:
    """How the kernel sees a replica's process; see `dyorc.transport.peer_process.PeerProcess`."""

    def __init__(self, process: VirtualProcess) -> None:
        self.process = process

    def is_running(self) -> bool:
        """See `PeerProcess.is_running`."""
        return self.process.state is not ProcessState.STOPPED

    def ending(self) -> PeerEnding:
        """See `PeerProcess.ending`."""
        return ending_of(self.process.wait_status)

    def wait(self, timeout_s: float) -> None:
        """See `PeerProcess.wait`."""
        give_up_s = time.monotonic() + timeout_s
        while self.process.state is not ProcessState.DEAD and time.monotonic() < give_up_s:
            time.sleep(_LINE_S)

    def close(self) -> None:
        """See `PeerProcess.close`."""


class VirtualHandle(ReplicaHandle):
    """An owner's end of a line to a replica's process."""

    def __init__(self, world: World, line: VirtualLine, process: VirtualProcess) -> None:
        self._world = world
        ends: Any = self
        ends.line, ends.process = line, WatchedProcess(process)
        self._target = process

    def kill(self) -> None:
        """See `ReplicaHandle.kill`."""
        if self._target.state is not ProcessState.DEAD:
            self._world.kill(self._target)


class VirtualForks:
    """Starts replicas' processes; see `dyorc.replica.fork_client.ForkClient`.

    Attributes:
        processes: The processes that live.
        started: Called with each process that was started.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.processes: list[VirtualProcess] = []
        self._lines: dict[VirtualProcess, VirtualLine] = {}
        self.started: Callable[[VirtualProcess], None] = lambda process: None

    def open(self) -> None:
        """See `ForkClient.open`."""

    def close(self) -> None:
        """See `ForkClient.close`."""

    def adopt(self, key: str) -> None:
        """No process is forked ahead."""

    def fork(self, assignment: ReplicaAssignment, *, is_adopted: bool) -> VirtualHandle:
        """See `ForkClient.fork`."""
        line, far = VirtualLine.pair(self._world)
        order = assignment.to_json()
        process = self._world.start_process(assignment.identity.replica_id, lambda: self._run(order, far))
        self.processes.append(process)
        self._lines[process] = line
        process.on_end.append(lambda: self._forget(process))
        process.on_end.append(far.close)
        self.started(process)
        return VirtualHandle(self._world, line, process)

    def let_leave(self, process: VirtualProcess) -> None:
        """Asks a process to finish its batches and end; its monitor starts another."""
        self._lines[process].send("leave")

    def _forget(self, process: VirtualProcess) -> None:
        self.processes.remove(process)
        del self._lines[process]

    def _run(self, order: str, line: VirtualLine) -> None:
        chance = self._world.chance
        time.sleep(chance.uniform(0, _SLOW_S if chance.random() < _SLOW_RATIO else _FORK_S))
        listener: Any = _Listener(line)
        status = forked_process._host(ReplicaAssignment.from_json(order), listener)
        if status:
            sys.exit(status)


class _Listener:
    """In place of the socket at which a replica's process waits for its owner, which has called already."""

    def __init__(self, line: VirtualLine) -> None:
        self.line = line

    def getsockname(self) -> str:
        """See `socket.socket.getsockname`."""
        return "forks/replica"


class VirtualOwners:
    """A process's only owner; see `dyorc.replica.replica_owners.ReplicaOwners`."""

    def __init__(self, listener: _Listener, key: str, check: Callable[[], None], is_needed: Callable[[], bool]) -> None:
        self._line = listener.line
        self._check = check
        self._is_over = False
        self.is_leaving = False

    def run(self) -> None:
        """See `ReplicaOwners.run`."""
        while not self._is_over:
            message = self._line.receive()
            if message is None:
                return
            if message["kind"] == "ping":
                self._line.send("pong", error=self._error())
            elif message["kind"] != "wake":
                self.is_leaving = message["kind"] == "leave"
                self._is_over = True

    def end(self, reason: str) -> None:
        """See `ReplicaOwners.end`."""
        self._is_over = True
        self._line.send("ended", error=reason)
        self._line.take({"kind": "wake"})

    def note_work(self) -> None:
        """See `ReplicaOwners.note_work`."""
        self._line.send("works")

    def _error(self) -> str:
        try:
            self._check()
        except Exception as error:
            TROUBLES.append(text_of(error))
            return TROUBLES[-1]
        return ""


def prepare(programs: Mapping[str, Program]) -> None:
    """Lets the code of replicas run in virtual processes.

    Args:
        programs: By name, the programs that are served: all processes share the modules in which they are defined.
    """
    hosted: Any = forked_process

    def import_program(source: ProgramSource) -> Program:
        return programs[source.name]

    hosted.ReplicaOwners, hosted._import_program = VirtualOwners, import_program
    sessions: Any = session
    sessions.WakeUp = VirtualWakeUp
    workers: Any = worker
    workers.process_age_s = lambda: _FORK_S
