"""The result of a measurement: one record, written as JSON. Latencies are in milliseconds, all other durations in seconds."""

from typing import Any

import msgspec

SCHEMA = 1


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Quantiles of latencies, in milliseconds."""

    p50: float
    p90: float
    p99: float
    p999: float
    mean: float
    max: float


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the requests whose planned time lies between the warm-up and the end.

    Attributes:
        planned: Requests that were due; each is in exactly one of the next four.
        correct: Answered like the reference (or unchecked).
        wrong: Answered differently.
        failed: Answered with an error.
        unanswered: Without an answer when the wait for the last ones ended, sent or not.
        within_slo: Correct and in time.
    """

    planned: int
    correct: int
    wrong: int
    failed: int
    unanswered: int
    within_slo: int


class BranchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that take one way through their workflow."""

    num_requests: int
    latency_ms: Quantiles
    histogram: str


class TailStage(msgspec.Struct, frozen=True, kw_only=True):
    """What one stage took of the slowest requests and of typical ones, on average.

    Attributes:
        num_caused: How many of the slowest owe most of their excess to it.
        program: Whose calls the slowest had most of it for; empty if it belongs to none, or the server does not say.
    """

    stage: str
    slowest_ms: float
    typical_ms: float
    num_caused: int
    program: str = ""


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of the slowest recorded requests went.

    Attributes:
        from_ms: What the fastest of the slowest took; None without requests.
        stages: The largest excess first.
    """

    num_requests: int
    num_slowest: int
    from_ms: float | None
    stages: list[TailStage]


class ServerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the server did meanwhile, as far as that is known.

    Attributes:
        batch_sizes: For each program, how many batches had which size (as a string, since JSON keys are strings).
        device_ms_per_request: For each program, its device time per measured request, in milliseconds.
        speculation: Counts of guesses, by name, of a server that guesses.
        tail: Its slowest 1 %, of a server that explains its requests.
        no_tail: Why there is no tail; empty if there is one, or it was not asked for.
    """

    batch_sizes: dict[str, dict[str, int]] = {}
    device_ms_per_request: dict[str, float] = {}
    speculation: dict[str, float] = {}
    tail: Tail | None = None
    no_tail: str = ""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The measured time in equal steps, the last of which may be shorter. Each list but the first has an entry for each step.

    Attributes:
        edges_s: When steps begin, in seconds from the end of the warm-up, and when the last ends.
        num_due: Requests that were due in the step. The next three are about these.
        num_bad: Those without a right answer: wrong, failed or unanswered.
        p50_ms, p99_ms: Their latencies; None where nothing was due.
        num_answered: Answers and errors that came in the step, whenever their requests were due.
        max_waiting: The most requests that were due without an answer at any one time, whether sent or not, including those of
            the warm-up.
    """

    edges_s: list[float]
    num_due: list[int]
    num_bad: list[int]
    p50_ms: list[float | None]
    p99_ms: list[float | None]
    num_answered: list[int]
    max_waiting: list[int]


class PartsResult(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of streamed answers.

    Attributes:
        num_parts: Parts of the planned requests.
        parts_per_s: Parts that came in the measured time, whenever their requests were due, per second.
        first_part_ms: From the planned time of sending to the first part, for all planned requests. One without a part counts
            like its latency: until its end or error, or as long as it waited.
        between_parts_ms: From each part to the next of the same answer, in the planned requests. An answer that broke off counts
            once more: from its last part to the error, or as long as it waited. None if there are no two parts.
        first_part_histogram, between_parts_histogram: All of these times, like `RunResult.histogram`; empty if there are none.
    """

    num_parts: int
    parts_per_s: float
    first_part_ms: Quantiles
    between_parts_ms: Quantiles | None
    first_part_histogram: str
    between_parts_histogram: str


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of one target under one load.

    Attributes:
        label: The name of what was measured.
        target: The `TargetSpec`, without its headers.
        load: The `Load`.
        duration_s: Measured time, without the warm-up.
        latency_ms: From the planned time of sending to the answer, for all planned requests. Failed ones count with the time
            until their error, unanswered ones with the time that they waited.
        throughput_rps: Correct answers per second.
        goodput_rps: Correct answers in time per second.
        goodput_ratio: Correct answers in time, as a fraction of all planned requests.
        errors: How many requests failed with each error text.
        first_wrong: The first wrong answer: which request, what came, what was expected; empty if there is none.
        send_delay_ms: How late the generator itself sent requests, for lack of CPU time, not of connections.
        client_cpu_ratio: CPU time of the busiest worker, in cores.
        client_warning: Why the figures may reflect the generator rather than the server; empty if nothing suggests it.
        histogram: All latencies in microseconds, an HDR histogram in its own compressed text form (V2).
        send_delay_histogram: The same for send delays.
        parts: The parts of the answers; None unless they were asked for in parts.
        timeline: The course over the measured time; None in files of earlier versions.
        machine: Processor, cores, memory, kernel.
        versions: Versions of Python and relevant packages.
        commit: The commit of the repository in which the generator was started; empty if there is none.
    """

    schema: int = SCHEMA
    label: str
    target: dict[str, Any]
    load: dict[str, Any]
    started_at: str
    duration_s: float
    num_workers: int
    counts: Counts
    errors: dict[str, int]
    first_wrong: str = ""
    slo_s: float | None
    latency_ms: Quantiles
    throughput_rps: float
    goodput_rps: float
    goodput_ratio: float
    branches: dict[str, BranchResult]
    send_delay_ms: Quantiles
    client_cpu_ratio: float
    client_warning: str
    histogram: str
    send_delay_histogram: str
    parts: PartsResult | None = None
    timeline: Timeline | None = None
    server: ServerFigures = ServerFigures()
    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str

    @property
    def rate_rps(self) -> float:
        """Requests per second: as the load says or, for a closed loop or a trace as recorded, as measured."""
        return float(self.load.get("rate_rps") or self.counts.planned / self.duration_s)
