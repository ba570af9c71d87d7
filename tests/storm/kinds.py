"""The kinds of requests, and by plain Python the right answer to each."""

from typing import Any

import numpy as np

from tests.workflows.stormy import MASK, MAX_ROUNDS

KINDS = {"plain": 5, "spread": 3, "looped": 3, "large": 2, "streamed": 2, "charged": 2, "stored": 1, "job": 3}
"""How often each is asked for."""
JOB_KINDS = ("spread", "looped", "stored", "charged")
GRPC_KINDS = ("plain", "spread", "looped", "large", "charged", "stored")
EFFECTS = {"charged": "charged", "stored": "stored"}
"""Workflows with effects, and the file in which each leaves a line."""
_NUM_WORDS = (1_000, 20_000, 200_000)
_NUM_PARTS = 6


def inputs_of(kind: str, number: int) -> dict[str, Any]:
    """Returns the tensors of a request."""
    if kind == "large":
        return {"words": np.arange(number, number + _NUM_WORDS[number % len(_NUM_WORDS)], dtype=np.int64)}
    return {"x": np.asarray(number, np.int64)}


def parameters_of(kind: str, folder: str) -> dict[str, Any]:
    """Returns what a request says besides its tensors."""
    if kind in EFFECTS:
        return {"folder": folder}
    return {"num_parts": _NUM_PARTS} if kind == "streamed" else {}


def expected(kind: str, number: int) -> Any:
    """Returns the right answer, as plain Python computes it."""
    match kind:
        case "plain" | "charged":
            return number + 1
        case "stored":
            return number + 2
        case "spread":
            return ((number * (number + 1) & MASK) * ((number + 2) * (number + 3) & MASK)) & MASK
        case "looped":
            return _looped(number)
        case "streamed":
            return [number + at + 7 for at in range(_NUM_PARTS)]
        case _:
            words = inputs_of(kind, number)["words"]
            steps = np.arange(len(words))
            return (words * 3 + steps) * 3 + steps


def _looped(number: int) -> int:
    for _ in range(MAX_ROUNDS):
        number = number * (number + 4) & MASK
        if not number & 1:
            break
    return number


def fault_of(kind: str, number: int, answer: Any) -> str:
    """Returns what is wrong with an answer; empty if nothing is."""
    right = expected(kind, number)
    if kind == "large":
        is_right = np.array_equal(answer, right)
        return "" if is_right else f"{kind} of {number}: {np.shape(answer)} words, {answer[:4]}, expected {right[:4]}"
    answer = [int(part) for part in answer] if kind == "streamed" else int(answer)
    return "" if answer == right else f"{kind} of {number}: {answer}, expected {right}"
