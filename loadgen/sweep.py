"""Searches for the highest rate at which a target meets its objective. It knows no server; it only asks for measurements and
decides."""

from collections.abc import Callable, Sequence
from math import sqrt

import msgspec

from loadgen.objectives import Objective
from loadgen.results import RunResult

Measure = Callable[[float], RunResult]
"""Measures the target at a rate, in requests per second; the load has an SLO."""
_MAX_HALVINGS = 10
"""How often the rate is halved at most, if the first one is too high."""
_FAR_RATIO = 0.8
"""With less goodput than this, a second try would not help."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of a sweep.

    Attributes:
        is_met: Whether the objective was met.
        is_client_limited: Whether the generator itself may have been too slow.
        is_repeated: Whether this is the second try at this rate, which replaces the first.
    """

    rate_rps: float
    is_met: bool
    is_client_limited: bool
    is_repeated: bool
    result: RunResult


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found.

    Attributes:
        highest_rps: The highest rate at which the objective was met; 0 if there is none.
        reason: Why it is not higher, in words.
        limited_by_client: Whether the next rate was beyond the generator's own reach, so that the target may do more.
        reached_max: Whether the objective was met at the highest allowed rate.
    """

    schema: int = 1
    kind: str = "sweep"
    label: str
    highest_rps: float
    reason: str
    limited_by_client: bool
    reached_max: bool
    min_goodput_ratio: float
    objectives: list[str] = []
    precision: float
    probes: list[Probe]


def is_met(result: RunResult, min_goodput_ratio: float, objectives: Sequence[Objective] = ()) -> bool:
    """Whether enough of all planned requests got a right answer in time, none a wrong one, and all objectives are met."""
    is_good = result.counts.wrong == 0 and result.goodput_ratio >= min_goodput_ratio
    return is_good and all(objective.is_met(result) for objective in objectives)


def sweep(
    measure: Measure,
    *,
    start_rps: float,
    max_rps: float,
    min_rps: float = 0.0,
    precision: float = 0.1,
    min_goodput_ratio: float = 0.99,
    objectives: Sequence[Objective] = (),
    label: str = "",
    stop_at_client_limit: bool = True,
    show: Callable[[Probe], None] | None = None,
) -> SweepResult:
    """Doubles the rate until the objective is missed, then bisects between the last rate that met it and the first that did not.

    A rate that misses the objective is tried a second time, since machines are noisy; but not if it misses by far, or because of
    a wrong answer. If the generator itself cannot reach a rate cleanly even in the second try, no higher rate is tried: nobody
        could tell which side was slow.

    Args:
        start_rps: The first rate; halved as long as the objective is missed.
        max_rps: The highest rate to try.
        min_rps: The lowest rate to try; below it, a measurement has hardly any requests.
        objectives: Limits for quantiles, beside the goodput.
        precision: The search ends when the two rates differ by no more than this fraction.
        stop_at_client_limit: If False, a rate that met the objective counts even if the generator may have been too slow. That is
            right where server and generator share cores, since the generator's lateness counts as latency anyway.

    Raises:
        ValueError: If an argument makes no sense.
    """
    if not (0 < start_rps <= max_rps and min_rps <= start_rps) or precision <= 0 or not 0 < min_goodput_ratio <= 1:
        raise ValueError(
            f"a sweep from {start_rps} to {max_rps} requests/s, not below {min_rps}, to {precision} with a goodput of"
            f" {min_goodput_ratio}: expected 0 < start <= max, a lowest rate that is not above start, a precision above 0 and a"
            " goodput between 0 and 1"
        )
    prober = _Prober(measure, min_goodput_ratio, objectives, stop_at_client_limit, show)
    low, high = _bracket(prober, start_rps, max_rps, min_rps)
    while low and high and high.rate_rps / low.rate_rps > 1 + precision:
        probe = prober.probe(sqrt(low.rate_rps * high.rate_rps))
        low, high = (probe, high) if probe.is_met else (low, probe)
        if probe.is_met and prober.is_doubtful(probe):
            high = probe
    return SweepResult(
        label=label,
        highest_rps=low.rate_rps if low else 0.0,
        reason=_reason(low, high, min_goodput_ratio, objectives),
        limited_by_client=high is not None and high.is_client_limited,
        reached_max=high is None,
        min_goodput_ratio=min_goodput_ratio,
        objectives=[str(objective) for objective in objectives],
        precision=precision,
        probes=prober.probes,
    )


class _Prober:
    """Measures rates, doubtful ones twice, and keeps all measurements."""

    def __init__(
        self,
        measure: Measure,
        min_goodput_ratio: float,
        objectives: Sequence[Objective],
        stop_at_client_limit: bool,
        show: Callable[[Probe], None] | None,
    ) -> None:
        self._objectives = objectives
        self._stop_at_client_limit = stop_at_client_limit
        self._measure = measure
        self._min_goodput_ratio = min_goodput_ratio
        self._show = show
        self.probes: list[Probe] = []

    def probe(self, rate_rps: float) -> Probe:
        first = self._once(rate_rps, is_repeated=False)
        is_clear = first.is_met and not self.is_doubtful(first)
        is_hopeless = first.result.counts.wrong > 0 or first.result.goodput_ratio < _FAR_RATIO
        return first if is_clear or is_hopeless else self._once(rate_rps, is_repeated=True)

    def is_doubtful(self, probe: Probe) -> bool:
        """Whether the search must not go beyond this rate, even if it met the objective."""
        return self._stop_at_client_limit and probe.is_client_limited

    def _once(self, rate_rps: float, *, is_repeated: bool) -> Probe:
        result = self._measure(rate_rps)
        probe = Probe(
            rate_rps=rate_rps,
            is_met=is_met(result, self._min_goodput_ratio, self._objectives),
            is_client_limited=bool(result.client_warning),
            is_repeated=is_repeated,
            result=result,
        )
        self.probes.append(probe)
        if self._show is not None:
            self._show(probe)
        return probe


def _bracket(prober: _Prober, start_rps: float, max_rps: float, min_rps: float) -> tuple[Probe | None, Probe | None]:
    """Returns the last rate that met the objective, and the first that did not or that the generator could not reach."""
    low: Probe | None = None
    probe = prober.probe(start_rps)
    if not probe.is_met:
        return _bracket_below(prober, probe, min_rps)
    while probe.is_met:
        low = probe
        if prober.is_doubtful(probe):
            return low, low
        if probe.rate_rps >= max_rps:
            return low, None
        probe = prober.probe(min(2 * probe.rate_rps, max_rps))
    return low, probe


def _bracket_below(prober: _Prober, high: Probe, min_rps: float) -> tuple[Probe | None, Probe]:
    for _ in range(_MAX_HALVINGS):
        if high.rate_rps / 2 < min_rps:
            break
        probe = prober.probe(high.rate_rps / 2)
        if probe.is_met:
            return (probe, probe) if prober.is_doubtful(probe) else (probe, high)
        high = probe
        if probe.result.counts.wrong:
            break  # less load does not turn wrong answers into right ones
    return None, high


def _reason(low: Probe | None, high: Probe | None, min_goodput_ratio: float, objectives: Sequence[Objective]) -> str:
    if high is None:
        return "the highest allowed rate; the target may do more"
    if high is low:
        return f"at {high.rate_rps:,.1f}/s the generator itself was the limit: {high.result.client_warning}"
    counts = high.result.counts
    if counts.wrong:
        return f"at {high.rate_rps:,.1f}/s {counts.wrong} of {counts.planned} answers were wrong"
    seen = f"at {high.rate_rps:,.1f}/s {_missed(high.result, min_goodput_ratio, objectives)}"
    return (
        f"{seen}; but there the generator may have been the limit: {high.result.client_warning}"
        if high.is_client_limited
        else seen
    )


def _missed(result: RunResult, min_goodput_ratio: float, objectives: Sequence[Objective]) -> str:
    missed = [
        f"{objective.time}_{objective.quantile} was {objective.value_ms(result):.3g} ms, expected {objective}"
        for objective in objectives
        if not objective.is_met(result)
    ]
    if result.goodput_ratio < min_goodput_ratio or not missed:
        missed.insert(0, f"{result.goodput_ratio:.2%} were right and in time, expected {min_goodput_ratio:.2%}")
    return "; ".join(missed)
