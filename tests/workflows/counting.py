"""Workflows over counters that stay where they are counted."""

import os
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Int

import dyorc

Numbers: TypeAlias = Int[np.ndarray, " batch"]
Number: TypeAlias = Int[np.ndarray, ""]


@dataclass(frozen=True)
class Counter:
    """What was counted, in order, and where."""

    counted: np.ndarray
    pid: int

    def plus(self, number: int) -> "Counter":
        """Returns another counter, which has also counted this number."""
        if self.pid != os.getpid():
            raise RuntimeError(f"a counter of process {self.pid} came to process {os.getpid()}")
        return Counter(np.append(self.counted, number), self.pid)


@dyorc.program(group="counters", num_replicas=2)
def begin(number: Numbers) -> dyorc.Resident[Counter]:
    """Makes counters, which have counted one number each."""
    return [Counter(np.array([each]), os.getpid()) for each in number]


@dyorc.program(group="counters", num_replicas=2)
def count(number: Numbers, counter: dyorc.Resident[Counter]) -> tuple[Numbers, dyorc.Resident[Counter]]:
    """Returns the sums of what was counted so far, and the counters."""
    counters = [old.plus(int(each)) for old, each in zip(counter, number, strict=True)]
    return np.array([each.counted.sum() for each in counters]), counters


@dyorc.program(group="counters", name="recount")
class Recount:
    """Does the same, and makes the counter of a whole chain at once."""

    def __call__(self, number: Numbers, counter: dyorc.Resident[Counter]) -> tuple[Numbers, dyorc.Resident[Counter]]:
        counters = [old.plus(int(each)) for old, each in zip(counter, number, strict=True)]
        return np.array([each.counted.sum() for each in counters]), counters

    def rebuild(self, calls: list[dyorc.ChainCall]) -> Counter:
        return Counter(np.array([int(call.inputs[0]) for call in calls]), os.getpid())


recount = Recount()


@dyorc.workflow
async def count_up(number: Number, num_turns: int) -> Number:
    """Counts a number again and again."""
    counter, total = begin(number), number
    for _ in range(num_turns):
        total, counter = count(number, counter)
    return total


@dyorc.workflow
async def count_both_ways(number: Number, num_turns: int) -> tuple[Number, Number]:
    """Goes on in two ways from one counter: with the number, and with the sums of the other way."""
    counter = begin(number)
    _, counter = count(number, counter)
    left, right = counter, counter
    total = other = number
    for _ in range(num_turns):
        total, left = count(number, left)
        other, right = count(total, right)
    return total, other
