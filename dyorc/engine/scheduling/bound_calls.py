"""Calls that wait for one process, because it holds their residents."""

from collections.abc import Callable

from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.scheduling.lanes import Lanes
from dyorc.engine.scheduling.queues import CallQueue


class BoundCalls:
    """The calls of a program that wait for one process.

    Attributes:
        queue: Those that are certain.
        guesses: Those that may turn out not to be needed.
    """

    __slots__ = ("guesses", "queue")

    def __init__(self, price: Callable[[int, float], float]) -> None:
        self.queue = CallQueue(price)
        self.guesses = Lanes(CallState.GUESSED, Call.guess)
