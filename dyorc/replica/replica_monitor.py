"""Keeps one replica's process alive: adopts or forks it, looks after it, and has another forked when it dies.

Runs in the Serve replica, on a thread of its own.
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
"""A process that has lived so long did not die at once."""
_MAX_FAILURES = 6
"""After so many processes in a row that died at once, the Serve replica is replaced: the fault may be this node's."""


class ReplicaMonitor:
    """Keeps a process from `start` until `stop`.

    Args:
        client: Of this node's fork server.
        assignment: What the process should be; each gets a name of its own.
    """

    def __init__(self, client: ForkClient, assignment: ReplicaAssignment, hosting: Hosting) -> None:
        self._client = client
        self._assignment = assignment
        self._hosting = hosting
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main, name="dyorc-keeper", daemon=True)
        self._holder: ReplicaHandle | None = None
        self._began_s = time.monotonic()
        self._num_failures = 0
        self._trouble = ""

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Has the process finish what it has and end, and waits for that."""
        self._stopping.set()
        if (holder := self._holder) is not None:
            holder.line.send("leave")
        self._thread.join()

    def check(self) -> None:
        """Raises RuntimeError if no process lives long enough."""
        program = self._assignment.source.program
        if not self._thread.is_alive():
            raise RuntimeError(f"nobody looks after program {program!r} any more: {self._trouble}")
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
        """Waits before the next process, the longer the more have died at once."""
        _log.warning("process_lost", program=self._assignment.source.program, reason=self._trouble)
        self._num_failures = 0 if self._is_settled() else self._num_failures + 1
        self._began_s = time.monotonic()
        if self._num_failures > 1:
            self._stopping.wait(min(_FIRST_DELAY_S * 2 ** (self._num_failures - 2), _MAX_DELAY_S))

    def _run_process(self) -> None:
        """Returns when a process is gone, or none can be had."""
        try:
            self._client.open()  # a fork server ends its replicas some time after its last caller has gone
            holder = self._client.adopt(self._assignment.key) or self._client.fork(self._assignment.of_another(), is_adopted=True)
        except (OSError, TransportError) as error:
            self._trouble = text_of(error)
            return
        self._holder = holder
        try:
            self._trouble = self._watch(holder)
        finally:
            self._holder = None
            if self._stopping.is_set():
                holder.end(self._assignment.graceful_s)
            else:
                holder.kill()
                holder.close()

    def _watch(self, holder: ReplicaHandle) -> str:
        """Returns what is wrong with the process once something is, or it should end.

        Time in which this process stood still itself does not count: when a whole machine or container was frozen, all were.
        """
        looked_s = answered_s = running_s = time.monotonic()
        trouble = ""
        while not self._stopping.is_set():
            try:
                message = holder.line.receive(self._hosting.ping_s)
            except TimeoutError:
                holder.line.send("ping")
            else:
                if message is None:
                    return trouble or holder.process.ending().reason
                answered_s = time.monotonic()
                trouble = message.get("error", "")
                if trouble and message["kind"] == "pong":
                    return trouble
            now_s = time.monotonic()
            frozen_s = max(0.0, now_s - looked_s - 2 * self._hosting.ping_s)
            looked_s, answered_s, running_s = now_s, answered_s + frozen_s, running_s + frozen_s
            if holder.process.is_running():
                running_s = now_s
            if now_s - running_s > self._hosting.stopped_timeout_s:
                return trouble or "its process is stopped"
            if now_s - answered_s > self._hosting.answer_timeout_s:
                return trouble or f"its process has not answered for {now_s - answered_s:.0f} s"
        return trouble
