"""Plans when requests are sent. Every worker makes the whole plan from the seed, and takes its share."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dyorc.traffic.arrivals import Arrivals, Constant, Gamma, Poisson, Ramp, Times, Trace
from loadgen.load import Load

MAX_REQUESTS = 50_000_000
"""The most requests in one measurement: their times alone take 400 MB."""
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Planned times of an open loop, in nanoseconds from the start.

    Attributes:
        times_ns: The times, ascending.
        warm_up_ns: Requests planned before this are not measured.
        end_ns: No requests are planned from here on.
    """

    times_ns: Times
    warm_up_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        """The measured time."""
        return (self.end_ns - self.warm_up_ns) / _NS_PER_S

    def share(self, worker: int, num_workers: int) -> tuple[Times, Times]:
        """Returns what one worker sends: the requests' numbers in the whole schedule, and their times."""
        numbers = np.arange(worker, len(self.times_ns), num_workers, dtype=np.int64)
        return numbers, self.times_ns[worker::num_workers]


def span_of(load: Load) -> tuple[int, int]:
    """Returns when the warm-up and the load end, in nanoseconds from the start.

    Raises:
        ValueError: If a duration is not valid.
    """
    for name, value in (("warm_up_s", load.warm_up_s), ("duration_s", load.duration_s), ("drain_s", load.drain_s)):
        if not (0 <= value < math.inf) or (name == "duration_s" and value == 0):
            raise ValueError(f"{name} is {value}, expected a number of seconds")
    warm_up_ns = round(load.warm_up_s * _NS_PER_S)
    return warm_up_ns, warm_up_ns + round(load.duration_s * _NS_PER_S)


def plan(load: Load) -> Schedule:
    """Returns the schedule of an open loop. The same load always has the same schedule.

    Raises:
        ValueError: If the load is not valid, or would have more than `MAX_REQUESTS` requests.
        InvalidInputError: If its trace cannot be read.
    """
    warm_up_ns, end_ns = span_of(load)
    if load.arrivals == "trace":
        return _plan_trace(load, warm_up_ns, end_ns)
    if not 0 < load.rate_rps < math.inf:
        raise ValueError(f"rate_rps is {load.rate_rps}, expected requests per second")
    _check_number(load.rate_rps * end_ns / _NS_PER_S, load)
    rng = np.random.default_rng(load.seed)
    if load.arrivals == "ramp":
        times_ns = _ramp(load, warm_up_ns, end_ns, rng)
    else:
        times_ns = _until(end_ns, _process(load), load.rate_rps, rng)
    return Schedule(times_ns=times_ns, warm_up_ns=warm_up_ns, end_ns=end_ns)


def _process(load: Load) -> Arrivals:
    match load.arrivals:
        case "poisson":
            return Poisson()
        case "gamma":
            if not load.cv > 0:
                raise ValueError(f"cv is {load.cv}, expected a number above 0")
            return Gamma(load.cv)
        case "constant":
            return Constant()
        case _:
            raise ValueError(f"arrivals is {load.arrivals!r}, expected poisson, gamma, constant, ramp, trace or closed")


def _until(end_ns: int, arrivals: Arrivals, rate_rps: float, rng: np.random.Generator) -> Times:
    """Returns all arrivals before `end_ns`. How many there are is known only once they are drawn."""
    expected = rate_rps * end_ns / _NS_PER_S
    times_ns = np.empty(0, np.int64)
    start_ns = 0
    while start_ns < end_ns:
        more = arrivals.times_ns(math.ceil(expected + 6 * math.sqrt(expected) + 16), rate_rps, rng) + start_ns
        times_ns = np.concatenate([times_ns, more])
        start_ns = int(times_ns[-1])
        if len(times_ns) > 2 * MAX_REQUESTS:
            raise ValueError(f"the load comes in such bursts that it has more than {MAX_REQUESTS:,} requests")
    return times_ns[: np.searchsorted(times_ns, end_ns)]


def _ramp(load: Load, warm_up_ns: int, end_ns: int, rng: np.random.Generator) -> Times:
    """Returns the start's rate during the warm-up, then the ramp: an even process with its time stretched."""
    if not 0 <= load.start_rps <= load.rate_rps:
        raise ValueError(f"a ramp from {load.start_rps} to {load.rate_rps} requests per second, expected one that grows")
    warm_up = _until(warm_up_ns, Poisson(), load.start_rps, rng) if load.start_rps else np.empty(0, np.int64)
    mean_rps = (load.start_rps + load.rate_rps) / 2
    duration_ns = end_ns - warm_up_ns
    even = _until(duration_ns, Poisson(), mean_rps, rng) / duration_ns
    times_ns = np.rint(Ramp(load.start_rps / mean_rps).warped(even) * duration_ns).astype(np.int64) + warm_up_ns
    return np.concatenate([warm_up, times_ns[times_ns < end_ns]])


def _plan_trace(load: Load, warm_up_ns: int, end_ns: int) -> Schedule:
    """Returns a trace as far as it goes: if it ends early, so does the load."""
    trace = Trace.read(Path(load.trace))
    _check_number(len(trace.times_s), load)
    rng = np.random.default_rng(load.seed)
    times_ns = trace.times_ns(len(trace.times_s), load.rate_rps or trace.rate_rps, rng)
    last_ns = int(times_ns[-1])
    if last_ns < warm_up_ns:
        raise ValueError(f"{load.trace} covers {last_ns / _NS_PER_S:g} s, expected more than the warm-up of {load.warm_up_s:g} s")
    end_ns = min(end_ns, last_ns + 1)
    return Schedule(times_ns=times_ns[: np.searchsorted(times_ns, end_ns)], warm_up_ns=warm_up_ns, end_ns=end_ns)


def _check_number(num_requests: float, load: Load) -> None:
    if num_requests > MAX_REQUESTS:
        raise ValueError(
            f"{load.arrivals} arrivals at {load.rate_rps:g} requests per second for {load.warm_up_s + load.duration_s:g} s are "
            f"{num_requests:,.0f} requests, expected at most {MAX_REQUESTS:,}"
        )
