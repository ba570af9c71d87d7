"""A question and its right answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """A question with the tokens of its right answer, according to the loop by hand, and their text."""

    question: bytes
    tokens: tuple[int, ...]
    text: bytes
