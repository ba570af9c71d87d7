"""Counts and times of what was served, by model, in the terms of the protocol's statistics.

The engine counts into `EngineStatistics`, which the shell keeps: an engine that takes over continues the counts of the last one.
"""

from collections.abc import Sequence

from dyorc.engine.estimators import LATENCY_BOUNDS_NS, Histogram
from dyorc.engine.tallies import BatchTally, ModelStatistics, Tally


class BatchTimes:
    """Where the time of a batch went, from when its replica was free for it until its results came, in nanoseconds.

    Time that the replica does not report, for the way there and back, is split evenly between input and output. If the
    batch reads streams, nearly all of it is the wait for their parts, so it is input.
    """

    __slots__ = ("elapsed_ns", "infer_ns", "input_ns", "output_ns", "size")

    def __init__(
        self, size: int, elapsed_ns: int, gather_s: float, infer_s: float, publish_s: float, *, is_reading: bool = False
    ) -> None:
        self.size = size
        self.elapsed_ns = elapsed_ns
        self.infer_ns = int(infer_s * 1e9)
        gather_ns, publish_ns = int(gather_s * 1e9), int(publish_s * 1e9)
        link_ns = max(0, elapsed_ns - gather_ns - self.infer_ns - publish_ns)
        half_ns = link_ns // 2
        self.input_ns = gather_ns + (link_ns if is_reading else half_ns)
        self.output_ns = publish_ns + (0 if is_reading else half_ns)


class GuessCounts:
    """Guesses among the calls of a program, or of a workflow's requests.

    Attributes:
        num_made: Calls that ran, or began to, before they were certain.
        num_committed: Guesses that were right.
        num_squashed: Guesses that were wrong.
        useful_s: Expected device time of calls that were needed, guesses or not.
        wasted_s: Expected device time of wrong guesses.
    """

    __slots__ = ("num_committed", "num_made", "num_squashed", "useful_s", "wasted_s")

    def __init__(self) -> None:
        self.num_made = self.num_committed = self.num_squashed = 0
        self.useful_s = self.wasted_s = 0.0


class HoldCounts:
    """Batches of a program that waited for calls about to be ready.

    Attributes:
        num: How many.
        num_joined: Calls that joined them meanwhile.
        held_ns: How long they waited in all.
    """

    __slots__ = ("held_ns", "num", "num_joined")

    def __init__(self) -> None:
        self.num = self.num_joined = self.held_ns = 0

    def add(self, num_joined: int, held_ns: int) -> None:
        """Counts a held batch that was sent."""
        self.num += 1
        self.num_joined += max(0, num_joined)
        self.held_ns += max(0, held_ns)


class PartTimes:
    """When parts came: of a program's calls, or of the requests of a workflow that streams.

    Attributes:
        first: How long the first part of each took.
        between: How long each of the others took after the one before.
    """

    __slots__ = ("between", "first")

    def __init__(self) -> None:
        self.first, self.between = Histogram(), Histogram()

    def add(self, index: int, took_ns: int) -> None:
        """Counts a part."""
        (self.between if index else self.first).add(took_ns)


class ModelRecord:
    """The counters of one model. Plain sums, because every batch adds to them; `totals` makes the report. One thread.

    Attributes:
        failures: Failed calls (requests) by the codes of their errors.
        latency: How long answered requests took; of a program, how long its batches took once their replica was free for them.
        waits: How long the program's calls waited for a replica.
        reasons: Batches that ran, by why they were formed.
        parts: When parts came; None if there never was one.
        cost: What the calls of all batches cost, of a program that declares it.
        moves: By tier, how many bytes of inputs came that way, and how long replicas waited for them, in seconds.
        effect_failures: Unreported effects of requests that failed or were lost, or `not_begun` at a stop, by error codes.
        num_evicted: How many residents that the program had made were dropped for want of room.
        num_rebuilt: How many it made again at once.
        num_replays: How many times the workflow was run again because no guess was right.
    """

    __slots__ = (
        "_batches", "_execution_count", "_fail", "_infer_ns", "_inference_count", "_input_ns", "_last_ns", "_num_run",
        "_output_ns", "_queue_ns", "_success_ns", "cost", "effect_failures", "failures", "guesses", "holds", "latency", "moves",
        "name", "num_evicted", "num_rebuilt", "num_replays", "parts", "reasons", "waits",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures: dict[str, int] = {}
        self.effect_failures: dict[str, int] = {}
        self.latency, self.waits = Histogram(LATENCY_BOUNDS_NS), Histogram()
        self.reasons: dict[str, int] = {}
        self.guesses, self.holds = GuessCounts(), HoldCounts()
        self.num_replays = self.num_evicted = self.num_rebuilt = 0
        self.parts: PartTimes | None = None
        self.cost = 0.0
        self.moves: dict[str, tuple[int, float]] = {}
        self._inference_count = self._execution_count = self._success_ns = 0
        self._num_run = self._queue_ns = self._input_ns = self._infer_ns = self._output_ns = 0
        self._fail = Tally()
        self._batches: dict[int, list[int]] = {}
        """By size: how many, and their times for input, inference and output."""
        self._last_ns = 0

    def count_batch(self, times: BatchTimes, waits_ns: list[int], reason: str, now_ns: int) -> None:
        """Counts a batch of the program.

        Args:
            waits_ns: How long each of its calls waited for its replica.
            reason: Why it was formed.
        """
        size, queue_ns = times.size, sum(waits_ns)
        self.latency.add(times.elapsed_ns)
        self.waits.add_all(waits_ns)
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self._inference_count += size
        self._execution_count += 1
        self._success_ns += queue_ns + size * times.elapsed_ns
        self._last_ns = now_ns
        self.count_calls(times, queue_ns, size)
        sums = self._batches.get(size)
        if sums is None:
            sums = self._batches[size] = [0, 0, 0, 0]
        sums[0] += 1
        sums[1] += times.input_ns
        sums[2] += times.infer_ns
        sums[3] += times.output_ns

    def count_calls(self, times: BatchTimes, queue_ns: int, number: int) -> None:
        """Counts the calls of a batch, which waited for `queue_ns` in all."""
        self._num_run += number
        self._queue_ns += queue_ns
        self._input_ns += number * times.input_ns
        self._infer_ns += number * times.infer_ns
        self._output_ns += number * times.output_ns

    def count_part(self, index: int, took_ns: int) -> None:
        """Counts a part of a call or request, and how long it took since the one before, or since the beginning."""
        if self.parts is None:
            self.parts = PartTimes()
        self.parts.add(index, took_ns)

    def add_transfer(self, tier: str, num_bytes: int, took_s: float) -> None:
        """Counts inputs of a batch that came by one tier."""
        before_bytes, before_s = self.moves.get(tier, (0, 0.0))
        self.moves[tier] = (before_bytes + num_bytes, before_s + took_s)

    def count_answer(self, took_ns: int, now_ns: int) -> None:
        """Counts an answered request of the workflow."""
        self._inference_count += 1
        self._execution_count += 1
        self._success_ns += took_ns
        self.latency.add(took_ns)
        self._last_ns = now_ns

    def count_failure(self, code: str, took_ns: int, now_ns: int) -> None:
        """Counts a failed call or request, by its error's code."""
        self._fail.add(took_ns)
        self.failures[code] = self.failures.get(code, 0) + 1
        self._last_ns = now_ns

    def count_effect_failures(self, code: str, number: int) -> None:
        """Counts unreported effects that failed, or were lost."""
        self.effect_failures[code] = self.effect_failures.get(code, 0) + number

    @property
    def num_ended(self) -> int:
        """Calls or requests that have succeeded or failed."""
        return self._inference_count + self._fail.count

    @property
    def num_failed(self) -> int:
        """Calls or requests that have failed."""
        return self._fail.count

    def sizes(self, bounds: Sequence[float]) -> Histogram:
        """Returns the sizes of the batches that ran."""
        sizes = Histogram(bounds)
        for size, sums in self._batches.items():
            sizes.add(size, sums[0])
        return sizes

    def totals(self, unix_offset_ns: int) -> ModelStatistics:
        """Returns the counts as a report.

        Args:
            unix_offset_ns: Added to the engine's times to get Unix time.
        """
        return ModelStatistics(
            last_inference_ms=(self._last_ns + unix_offset_ns) // 1_000_000 if self._last_ns else 0,
            inference_count=self._inference_count,
            execution_count=self._execution_count,
            success=Tally(self._inference_count, self._success_ns),
            fail=Tally(self._fail.count, self._fail.ns),
            queue=Tally(self._num_run, self._queue_ns),
            compute_input=Tally(self._num_run, self._input_ns),
            compute_infer=Tally(self._num_run, self._infer_ns),
            compute_output=Tally(self._num_run, self._output_ns),
            batches={
                size: BatchTally(Tally(number, input_ns), Tally(number, infer_ns), Tally(number, output_ns))
                for size, (number, input_ns, infer_ns, output_ns) in sorted(self._batches.items())
            },
        )


MAX_RETIRED = 16
"""Of programs, and of workflows: how many that have left keep their records, so that scrapers see their last counts."""


class EngineStatistics:
    """All records.

    Attributes:
        programs: Of the programs' calls, by program name.
        workflows: Of the workflows' requests, by workflow name, also of workflows that only wrap a program.
        retired_programs: Of programs that are no longer served, the latest `MAX_RETIRED`: each version of a workflow may bring
            programs with names of their own, and a server may see thousands of versions.
        retired_workflows: Of workflows, likewise.
    """

    def __init__(self) -> None:
        self.programs: dict[str, ModelRecord] = {}
        self.workflows: dict[str, ModelRecord] = {}
        self.retired_programs: dict[str, ModelRecord] = {}
        self.retired_workflows: dict[str, ModelRecord] = {}

    def of_program(self, name: str) -> ModelRecord:
        """Returns the record of a program's calls."""
        record = self.programs.get(name)
        if record is None:
            is_retired = name in self.retired_programs
            record = self.programs[name] = self.retired_programs.pop(name) if is_retired else ModelRecord(name)
        return record

    def of_workflow(self, name: str) -> ModelRecord:
        """Returns the record of a workflow's requests, also if the workflow only wraps a program."""
        record = self.workflows.get(name)
        if record is None:
            is_retired = name in self.retired_workflows
            record = self.workflows[name] = self.retired_workflows.pop(name) if is_retired else ModelRecord(name)
        return record

    def retire_program(self, name: str) -> None:
        """Puts the record of a program aside that is no longer served; it comes back if the program does, soon enough."""
        _retire(self.programs, self.retired_programs, name)

    def retire_workflow(self, name: str) -> None:
        """Does the same with a workflow."""
        _retire(self.workflows, self.retired_workflows, name)

    def count_unanswered(self, workflow: str, code: str, took_ns: int, now_ns: int) -> None:
        """Counts a request that failed for another reason than its calls: refused, cancelled, late, or lost with its engine.

        If its workflow only wraps a program, it counts as a failed call, too.
        """
        self.of_workflow(workflow).count_failure(code, took_ns, now_ns)
        if workflow in self.programs:
            self.programs[workflow].count_failure(code, took_ns, now_ns)

    def of(self, name: str, unix_offset_ns: int) -> ModelStatistics:
        """Returns the statistics of a model, which is a program's if it is one. All 0 for a model that was never used.

        Args:
            unix_offset_ns: Added to the engine's times to get Unix time.
        """
        each = (self.programs, self.workflows, self.retired_programs, self.retired_workflows)
        record = next((records[name] for records in each if name in records), None)
        return (record or ModelRecord(name)).totals(unix_offset_ns)


def _retire(records: dict[str, ModelRecord], retired: dict[str, ModelRecord], name: str) -> None:
    record = records.pop(name, None)
    if record is not None:
        retired.pop(name, None)
        retired[name] = record
        if len(retired) > MAX_RETIRED:
            del retired[next(iter(retired))]
