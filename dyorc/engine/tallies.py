"""Counts as plain values, which pass between processes.

This module is never compiled: mypyc drops the types of fields, by which such values are read again.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(slots=True)
class Tally:
    """How many times something happened, and how long it took in all, in nanoseconds."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        """Adds `count` occurrences that took `ns` nanoseconds in all."""
        self.count += count
        self.ns += ns

    def plus(self, other: "Tally") -> "Tally":
        """Returns both together."""
        return Tally(self.count + other.count, self.ns + other.ns)


class EffectsGivenUp(NamedTuple):
    """Effects of answered requests that an engine took with it.

    Attributes:
        num_begun: They may have happened.
        num_not_begun: They have not, and will not.
    """

    num_begun: int
    num_not_begun: int


@dataclass(slots=True)
class BatchTally:
    """Batches of one size."""

    compute_input: Tally = field(default_factory=Tally)
    compute_infer: Tally = field(default_factory=Tally)
    compute_output: Tally = field(default_factory=Tally)

    def plus(self, other: "BatchTally") -> "BatchTally":
        """Returns both together."""
        return BatchTally(
            self.compute_input.plus(other.compute_input),
            self.compute_infer.plus(other.compute_infer),
            self.compute_output.plus(other.compute_output),
        )


@dataclass(slots=True)
class ModelStatistics:
    """One model: a program counts its calls in all workflows, a workflow its requests.

    A call counts when it has run, guesses included; one that was withdrawn before, because it was no longer needed, counts
    neither as success nor as failure. A program's times are summed over its calls, which each take as long as their whole batch.
    A workflow's `queue` and `compute` are those of the calls that its requests made, but for guesses that were still
    open when they had run; if a batch has calls of several workflows, they count as having waited equally long.

    Attributes:
        last_inference_ms: Unix time of the last one that ended, in milliseconds; 0 before the first.
        inference_count: Calls (requests) that succeeded.
        execution_count: Batches that ran; for a workflow, the same as `inference_count`.
        success: Calls that succeeded, from arrival to result.
        fail: Calls that failed.
        queue: Waiting for a replica.
        compute_input: On the way to the program: message, fetching and stacking of inputs.
        compute_infer: In the program.
        compute_output: Splitting and storing of outputs, and the way back.
        batches: By their size.
    """

    last_inference_ms: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: Tally = field(default_factory=Tally)
    fail: Tally = field(default_factory=Tally)
    queue: Tally = field(default_factory=Tally)
    compute_input: Tally = field(default_factory=Tally)
    compute_infer: Tally = field(default_factory=Tally)
    compute_output: Tally = field(default_factory=Tally)
    batches: dict[int, BatchTally] = field(default_factory=dict[int, BatchTally])

    def add(self, other: "ModelStatistics") -> None:
        """Adds the counts of the same model in another process."""
        self.last_inference_ms = max(self.last_inference_ms, other.last_inference_ms)
        self.inference_count += other.inference_count
        self.execution_count += other.execution_count
        for name in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
            getattr(self, name).add(getattr(other, name).ns, getattr(other, name).count)
        for size, tally in other.batches.items():
            self.batches[size] = self.batches.get(size, BatchTally()).plus(tally)
