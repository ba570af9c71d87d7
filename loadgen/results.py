"""What a measurement gives: one record, written as JSON. Latencies are in milliseconds, all other durations in seconds."""

from typing import Any

import msgspec

SCHEMA = 1


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of latencies, in milliseconds."""

    p50: float
    p90: float
    p99: float
    p999: float
    mean: float
    max: float


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Of the requests whose planned time lies between the warm-up and the end.

    Attributes:
        planned: Requests that were due; each is in exactly one of the four that follow.
        correct: Answered, with the reference's answer (or unchecked).
        wrong: Answered otherwise.
        failed: Answered by an error.
        unanswered: Without an answer when the wait for the last ones was over, sent or not.
        within_slo: Correct and in time.
    """

    planned: int
    correct: int
    wrong: int
    failed: int
    unanswered: int
    within_slo: int


class BranchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that take one way through their workflow."""

    num_requests: int
    latency_ms: Quantiles
    histogram: str


class ServerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the server did meanwhile, as far as it can be known.

    Attributes:
        batch_sizes: For each program, batches by their size (a number, as text: JSON has no other keys).
        device_ms_per_request: For each program, its time on the device for each measured request, in milliseconds.
        speculation: Counts of guesses, by name, of a server that guesses.
    """

    batch_sizes: dict[str, dict[str, int]] = {}
    device_ms_per_request: dict[str, float] = {}
    speculation: dict[str, float] = {}


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The measured time in equal steps, the last of which may be shorter. Each list but the first has an entry for each step.

    Attributes:
        edges_s: Where steps begin, in seconds from the end of the warm-up; and the end of the last.
        num_due: Requests that were due in the step. The next three are of these.
        num_bad: Without a right answer: wrong, failed or unanswered.
        p50_ms, p99_ms: Latencies; None where nothing was due.
        num_answered: Answers and errors that came in the step, whenever their requests were due.
        max_waiting: The most requests at once that were due and had no answer: sent or not, of the warm-up or not.
    """

    edges_s: list[float]
    num_due: list[int]
    num_bad: list[int]
    p50_ms: list[float | None]
    p99_ms: list[float | None]
    num_answered: list[int]
    max_waiting: list[int]


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of one target under one load.

    Attributes:
        label: Who was measured.
        target: The `TargetSpec`, without its headers.
        load: The `Load`.
        duration_s: Measured time, without the warm-up.
        latency_ms: From the planned time of sending to the answer, of all that were planned: what failed counts with the
            time until its error, what had no answer with the time that it waited.
        throughput_rps: Correct answers a second.
        goodput_rps: Correct answers in time a second.
        goodput_ratio: Correct answers in time, of all that were planned.
        errors: Failed requests by their text.
        first_wrong: The first wrong answer: which request, what came, what was expected; empty if there is none.
        send_delay_ms: How late the generator itself sent, after the planned time: for want of CPU time, not of connections.
        client_cpu_ratio: CPU time of the busiest worker, in cores.
        client_warning: Why the figures may be the generator's own rather than the server's; empty if there is no reason.
        histogram: All latencies in microseconds, an HDR histogram in its own compressed text form (V2).
        send_delay_histogram: The same of the send delays.
        timeline: How it went over the measured time; None in files of earlier versions.
        machine: Processor, cores, memory, kernel.
        versions: Of Python and of what matters here.
        commit: Of the repository that the generator was started from; empty if there is none.
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
    timeline: Timeline | None = None
    server: ServerFigures = ServerFigures()
    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str

    @property
    def rate_rps(self) -> float:
        """Requests a second: the load's; of a trace as it was recorded, or of a closed loop, what came of it."""
        return float(self.load.get("rate_rps") or self.counts.planned / self.duration_s)
