"""Keeps one replica's process alive: adopts or forks it, watches it, and forks another when it dies.

Runs in the Serve replica, on a separate thread.
"""

import threading
import time

import structlog

from dyorc.errors import TransportError, text_of
from dyorc.replica.assignment import Hosting, ReplicaAssignment
from dyorc.replica.fork_client import ForkClient, ReplicaHandle

_log = structlog.get_logger("dyorc.replica")

_FIRST_DELAY_S, _MAX_DELAY_S = 0.5, 30.0
_SETTLED_S = 10.0
"""A process that has lived this long did not die at once."""
_MAX_FAILURES = 6
"""After this many processes in a row that died at once, the Serve replica is replaced: the cause may be this node."""


class ReplicaMonitor:
    """Keeps a process from `start` until `stop`.

    Args:
        client: For this node's fork server.
        assignment: What the process runs; each process gets another replica id.
    """

    def __init__(self, client: ForkClient, assignment: ReplicaAssignment, hosting: Hosting) -> None:
        self._client = client
        self._assignment = assignment
        self._hosting = hosting
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main, name="dyorc-keeper", daemon=True)
        self._handle: ReplicaHandle | None = None
        self._began_s = time.monotonic()
        self._num_failures = 0
        self._has_worked = False
        self._trouble = ""

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Lets the process finish its work and end, and waits for that."""
        self._stopping.set()
        if (handle := self._handle) is not None:
            handle.line.send("leave")
        self._thread.join()

    def check(self) -> None:
        """Raises RuntimeError if no process lives long enough."""
        program = self._assignment.identity.program
        if not self._thread.is_alive():
            raise RuntimeError(f"the monitor thread of program {program!r} has died: {self._trouble}")
        if self._num_failures >= _MAX_FAILURES and not self._is_settled():
            raise RuntimeError(f"program {program!r} cannot be kept running: {self._trouble}")

    def _is_settled(self) -> bool:
        """Returns whether the last process has not died at once."""
        return time.monotonic() - self._began_s > _SETTLED_S

    def _main(self) -> None:
        try:
            while not self._stopping.is_set():
                self._began_s = time.monotonic()
                self._run_process()
                if not self._stopping.is_set():
                    self._pause()
        finally:
            self._client.close()

    def _pause(self) -> None:
        """Waits before the next process, the longer the more have died at once, without having run a batch.

        One that has run a batch works. It was killed, by a person or by its last batch, which the engine takes care of.
        """
        _log.warning("process_lost", program=self._assignment.identity.program, reason=self._trouble)
        self._num_failures = 0 if self._is_settled() or self._has_worked else self._num_failures + 1
        self._began_s = time.monotonic()
        if self._num_failures > 1:
            self._stopping.wait(min(_FIRST_DELAY_S * 2 ** (self._num_failures - 2), _MAX_DELAY_S))

    def _run_process(self) -> None:
        """Runs a process. Returns when it is gone, or if none can be forked."""
        self._has_worked = False
        try:
            self._client.open()  # a fork server ends its replicas some time after its last client has left
            handle = self._client.adopt(self._assignment.key)
            handle = handle or self._client.fork(self._assignment.for_another(), is_adopted=True)
        except (OSError, TransportError) as error:
            self._trouble = text_of(error)
            return
        self._handle = handle
        try:
            self._trouble = self._watch(handle)
        finally:
            self._handle = None
            if self._stopping.is_set():
                handle.end(self._assignment.graceful_s)
            else:
                handle.kill()
                handle.close()

    def _watch(self, handle: ReplicaHandle) -> str:
        """Returns what is wrong with the process once something is, or when it should end.

        Time in which this process itself stood still does not count: then the whole machine or container was frozen.
        """
        looked_s = answered_s = running_s = time.monotonic()
        trouble = ""
        while not self._stopping.is_set():
            try:
                message = handle.line.receive(self._hosting.ping_s)
            except TimeoutError:
                handle.line.send("ping")
            else:
                if message is None:
                    return trouble or handle.process.ending().reason
                answered_s = time.monotonic()
                self._has_worked = self._has_worked or message["kind"] == "works"
                trouble = message.get("error", "")
                if trouble and message["kind"] == "pong":
                    return trouble
            now_s = time.monotonic()
            frozen_s = max(0.0, now_s - looked_s - 2 * self._hosting.ping_s)
            looked_s, answered_s, running_s = now_s, answered_s + frozen_s, running_s + frozen_s
            if handle.process.is_running():
                running_s = now_s
            if now_s - running_s > self._hosting.stopped_timeout_s:
                return trouble or "its process is stopped"
            if now_s - answered_s > self._hosting.answer_timeout_s:
                return trouble or f"its process has not answered for {now_s - answered_s:.0f} s"
        return trouble
