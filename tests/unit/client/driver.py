"""Runs operations of the client by hand: with a clock that the test sets, and answers from a list."""

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from dyorc.client.effects import BrokenExchange, Emit, Read, Reply, Send, Sleep
from dyorc.client.retries import RetryingSender
from dyorc.errors import TransportError


@dataclass
class Driver:
    """Plays a server by a script.

    Attributes:
        outcomes: The outcome of each request, in order, and after how many seconds it comes.
        draw: What every random number is.
        pause_s: How long the reader of a stream takes for each part.
    """

    outcomes: list[tuple[float, Any]] = field(default_factory=list[tuple[float, Any]])
    draw: float = 1.0
    pause_s: float = 0.0
    now_s: float = 1000.0
    sent: list[Send] = field(default_factory=list[Send])
    slept_s: list[float] = field(default_factory=list[float])
    parts: list[Any] = field(default_factory=list[Any])

    @property
    def delivery(self) -> RetryingSender:
        return RetryingSender(lambda: self.now_s, lambda: self.draw)

    def run(self, flow: Generator[Any, Any, Any]) -> Any:
        """Returns what an operation returns."""
        outcome: Any = None
        while True:
            try:
                effect = flow.send(outcome)
            except StopIteration as end:
                return end.value
            match effect:
                case Sleep():
                    self.slept_s.append(effect.duration_s)
                    self.now_s += effect.duration_s
                    outcome = None
                case Emit():
                    self.parts.append(effect.value)
                    self.now_s += self.pause_s
                    outcome = None
                case Send() | Read():
                    if isinstance(effect, Send):
                        self.sent.append(effect)
                    took_s, outcome = self.outcomes.pop(0)
                    self.now_s += took_s


def reply(content: Any, status: int = 200, **headers: str) -> Reply:
    """Returns an answer in JSON."""
    return Reply(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, bytearray(json.dumps(content).encode())
    )


def refused(status: int, code: str, *, retryable: bool, **headers: str) -> Reply:
    """Returns an error as our servers send it."""
    return reply({"error": f"it is {code}", "code": code, "retryable": retryable}, status, **headers)


def broken(*, was_sent: bool) -> BrokenExchange:
    """Returns a connection that broke."""
    return BrokenExchange(TransportError("it broke"), was_sent=was_sent)
