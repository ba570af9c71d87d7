"""A forked replica's end of its owners' connections: it lives as long as it has an owner.

Before its Serve replica is up, the server that forked it owns it. Then the Serve replica *adopts* it: if several try, the process
itself decides which was first. The others are notified, and disconnect.

A Serve replica that is killed leaves its process behind. Serve starts another one, which takes seconds, and adopts it. Until then
the process goes on by itself, with its weights, its running batches and its residents, as long as its orchestrator is there.
"""

import contextlib
import selectors
import socket
import time
from collections.abc import Callable

from dyorc.errors import text_of
from dyorc.system.json_lines import JsonLineSocket, Message

_GRACE_S = 10.0
"""How long a new process waits for its first owner."""
_ORPHANED_S = 120.0
"""How long a process waits for another owner, after the one that had adopted it was killed."""
_LOOK_S = 0.2
"""How often a process without an owner looks whether it is needed."""


class ReplicaOwners:
    """Serves owners on the calling thread.

    Args:
        listener: Where they connect.
        key: Identifies the program: an owner that adopts this process must send the same key.
        check: Raises if the replica should be replaced.
        is_needed: Returns whether it may wait for another owner when its owner was killed.

    Attributes:
        is_leaving: Whether it may finish its work before it ends.
    """

    def __init__(
        self, listener: socket.socket, key: str, check: Callable[[], None], is_needed: Callable[[], bool] = lambda: False
    ) -> None:
        self._listener = listener
        self._key = key
        self._check = check
        self._is_needed = is_needed
        self._lines: set[JsonLineSocket] = set()
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._adopter: JsonLineSocket | None = None
        self._orphaned_s: float | None = None
        self._has_worked = False
        self._must_end = False
        self._is_over = False
        self.is_leaving = False
        self._reason = ""

    def run(self) -> None:
        """Returns once the process has no owner, an owner stops it, or `end` is called."""
        self._started_s = time.monotonic()
        self._had_owner = False
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._wake_up)
        while not self._is_over and (self._lines or self._may_wait()):
            for key, _ in self._selector.select(None if self._lines else _LOOK_S):
                key.data()
            self._had_owner = self._had_owner or bool(self._lines)
        self._listener.close()  # from now on it cannot be adopted

    def _may_wait(self) -> bool:
        """Returns whether it waits for an owner: for the first, or for another after its Serve replica was killed."""
        now_s = time.monotonic()
        if not self._had_owner:
            return now_s - self._started_s < _GRACE_S
        return self._orphaned_s is not None and now_s - self._orphaned_s < _ORPHANED_S and self._is_needed()

    def end(self, reason: str) -> None:
        """Makes `run` return, after sending the reason to the owners. Any thread."""
        self._reason, self._must_end = reason, True
        self._waker.send(b"1")

    def note_work(self) -> None:
        """Tells the owners that it has run a batch, so that it works, whatever it may die of later. Any thread."""
        self._has_worked = True
        self._waker.send(b"1")

    def _wake_up(self) -> None:
        self._woken.recv(16)
        self._is_over = self._is_over or self._must_end
        for line in self._lines:
            if self._must_end:
                line.send("ended", error=self._reason)
            else:
                line.send("works")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            line = JsonLineSocket(connection)
            self._lines.add(line)
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._handle_messages(line))

    def _handle_messages(self, line: JsonLineSocket) -> None:
        messages = line.receive_ready()
        if messages is None:
            self._selector.unregister(line.connection)
            self._lines.discard(line)
            line.close()
            if line is self._adopter:
                self._adopter, self._orphaned_s = None, time.monotonic()
            return
        for message in messages:
            self._answer(line, message)

    def _answer(self, line: JsonLineSocket, message: Message) -> None:
        match message["kind"]:
            case "adopt":
                is_first = self._adopter is None and message["key"] == self._key
                line.send("adopted", is_yours=is_first)
                if is_first:
                    self._adopter, self._orphaned_s = line, None
                    for other in self._lines - {line}:
                        other.send("taken")
                    if self._has_worked:
                        line.send("works")
            case "ping":
                line.send("pong", error=self._error())
            case "leave":
                self.is_leaving = self._is_over = True
            case _:
                self._is_over = True

    def _error(self) -> str:
        try:
            self._check()
        except Exception as error:
            return text_of(error)
        return ""
