"""Whoever asked for requests: somebody in this process, whose `Answers` bring in the bytes, or a gateway in another."""

from collections.abc import Callable, Sequence
from typing import Protocol

from dyorc.engine.actions import AnswerPart, AnswerRequest


class Asker(Protocol):
    """Gets what becomes of its requests. On the event loop; must not wait.

    Tensors that are stored are kept until the engine is told that their bytes were read (`AnswerTaken`, `PartTaken`).
    """

    def answer(self, action: AnswerRequest) -> None:
        """Takes the answer of a request. It comes again if the engine is told that it was lost."""
        ...

    def part(self, action: AnswerPart) -> None:
        """Takes a part of the answer of a request that streams."""
        ...

    def confirm_effect(self, requests: Sequence[int], go: Callable[[bool], None]) -> None:
        """Learns that these requests, some of which are its own, are about to have an effect that must not be had twice.

        Args:
            go: Called with True once it has taken that in, perhaps before this returns; with False if it never will.
        """
        ...

    def failed(self, request_id: int, error: Exception) -> None:
        """Takes the error of a request. Nothing follows it."""
        ...
