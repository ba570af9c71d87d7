"""Counts and times of what was served, by model: for the protocol's statistics, in its terms."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """How often something happened, and how long it took in all, in nanoseconds."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        """It happened `count` times, for `ns` nanoseconds in all."""
        self.count += count
        self.ns += ns


@dataclass(slots=True)
class BatchTally:
    """Batches of one size."""

    compute_input: Tally = field(default_factory=Tally)
    compute_infer: Tally = field(default_factory=Tally)
    compute_output: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class ModelStatistics:
    """One model: a program counts its calls, in whatever workflow they were made; a workflow its requests.

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
