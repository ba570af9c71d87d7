"""A forked replica's end of its owners' connections: it lives as long as it has an owner.

Before its Serve replica is up, the server that forked it owns it. Then the Serve replica *adopts* it: if several try, the process
itself decides which was first. The others are notified, and disconnect.
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


class ReplicaOwners:
    """Serves owners on the calling thread.

    Args:
        listener: Where they connect.
        key: Identifies the program: an owner that adopts this process must send the same key.
        check: Raises if the replica should be replaced.

    Attributes:
        is_leaving: Whether it may finish its work before it ends.
    """

    def __init__(self, listener: socket.socket, key: str, check: Callable[[], None]) -> None:
        self._listener = listener
        self._key = key
        self._check = check
        self._lines: set[JsonLineSocket] = set()
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._is_adopted = False
        self._is_over = False
        self.is_leaving = False
        self._reason = ""

    def run(self) -> None:
        """Returns once the process has no owner, an owner stops it, or `end` is called."""
        started_s = time.monotonic()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._finish)
        had_owner = False
        while not self._is_over and (self._lines or (not had_owner and time.monotonic() - started_s < _GRACE_S)):
            for key, _ in self._selector.select(None if self._lines else 0.5):
                key.data()
            had_owner = had_owner or bool(self._lines)
        self._listener.close()  # from now on it cannot be adopted

    def end(self, reason: str) -> None:
        """Makes `run` return, after sending the reason to the owners. Any thread."""
        self._reason = reason
        self._waker.send(b"1")

    def _finish(self) -> None:
        self._is_over = True
        for line in self._lines:
            line.send("ended", error=self._reason)

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
            return
        for message in messages:
            self._answer(line, message)

    def _answer(self, line: JsonLineSocket, message: Message) -> None:
        match message["kind"]:
            case "adopt":
                is_first = not self._is_adopted and message["key"] == self._key
                line.send("adopted", is_yours=is_first)
                if is_first:
                    self._is_adopted = True
                    for other in self._lines - {line}:
                        other.send("taken")
            case "hold":
                if self._is_adopted:
                    line.send("taken")
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
