"""Watches what requests do, and foresees which programs they will call.

The engine reports each request, in order, from one thread. The calls ahead of a program are those of requests in flight, by what
they have called so far, and those of requests that are still to come.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dyorc.scaling.counts import NOTHING, Count
from dyorc.scaling.forecast.arrival_forecast import ArrivalForecast
from dyorc.scaling.visits import Due
from dyorc.scaling.workflow_visits import RequestWalk, WorkflowVisits

_MAX_WORKFLOWS = 1000
_MAX_REQUESTS = 100_000
"""Requests that are followed at a time; of others only the arrival counts."""
_URGENT_PROBABILITY = 0.05
"""A call at least this likely makes a program that is not ready urgent."""


@dataclass(frozen=True, slots=True)
class _Coming:
    """Calls of requests that have not come yet: each makes `mean` of them, `delay_s` after it came."""

    forecast: ArrivalForecast
    mean: float
    square: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class _Outlook:
    """All that will call one program."""

    due: Sequence[Due]
    coming: Sequence[_Coming]


class Traffic:
    """What requests do and will do: the `Observer` of the engine, and what the policy asks.

    Cost: 2 us for a request's arrival, 0.5 to 1.5 us for each of its calls, 3 to 20 us for its end: the more programs it has
    called, the more.

    Attributes:
        is_urgent: Whether a request will probably soon need a program that is not ready. Set here; reset by the caller of the
            policy.
    """

    def __init__(self, bin_s: float = 0.5, season_s: float | None = None) -> None:
        """
        Args:
            bin_s: Arrivals are counted in bins of this length.
            season_s: Known period of the traffic; None looks for one.
        """
        self.is_urgent = False
        self._bin_s = bin_s
        self._season_s = season_s
        self._forecasts: dict[str, ArrivalForecast] = {}
        self._visits: dict[str, WorkflowVisits] = {}
        self._walks: dict[int, RequestWalk] = {}
        self._unready: dict[str, float] = {}
        self._outlooks: dict[str, _Outlook] = {}

    def arrived(self, request_id: int, workflow: str, now_ns: int) -> None:
        """A request came."""
        forecast = self._forecasts.get(workflow)
        if forecast is None:
            if len(self._forecasts) >= _MAX_WORKFLOWS:
                return
            forecast = self._forecasts[workflow] = ArrivalForecast(now_ns, self._bin_s, self._season_s)
            self._visits[workflow] = WorkflowVisits()
        forecast.arrived(now_ns)
        if len(self._walks) < _MAX_REQUESTS and request_id not in self._walks:
            walk = self._walks[request_id] = self._visits[workflow].enter(now_ns)
            if self._unready and walk.leads_to(self._unready, _URGENT_PROBABILITY):
                self.is_urgent = True

    def called(self, request_id: int, program: str, now_ns: int) -> None:
        """A request called a program, for certain."""
        walk = self._walks.get(request_id)
        if walk is None:
            return
        is_first = walk.call(program, now_ns)
        if is_first and self._unready:
            unready = self._unready
            if program in unready or walk.leads_to(unready, _URGENT_PROBABILITY):
                self.is_urgent = True

    def ended(self, request_id: int, now_ns: int) -> None:
        """A request ended, one way or another."""
        walk = self._walks.pop(request_id, None)
        if walk is not None:
            walk.end(now_ns)

    def watch(self, unready: Mapping[str, float]) -> None:
        """Sets the programs that have no warm replica, and how many seconds each takes to get one: what leads to them sooner is
        urgent.
        """
        self._unready = dict(unready)

    def advance(self, now_ns: int) -> None:
        """Brings everything foreseen up to date."""
        self._outlooks.clear()
        for forecast in self._forecasts.values():
            forecast.advance(now_ns)

    def ahead(self, program: str, start_s: float, end_s: float, now_ns: int) -> Count:
        """Returns how many calls of a program come within a window, in seconds from now, as of the last `advance`."""
        outlook = self._outlooks.get(program)
        if outlook is None:
            outlook = self._outlooks[program] = self._look_out(program, now_ns)
        total = NOTHING
        for due in outlook.due:
            part = (min(end_s, due.lasts_s) - min(start_s, due.lasts_s)) / due.lasts_s
            if part > 0:
                total += Count(float(due.number)).each(due.mean * part, due.square * part)
        for coming in outlook.coming:
            arrivals = coming.forecast.within(start_s - coming.delay_s, end_s - coming.delay_s)
            if arrivals.mean:
                total += arrivals.each(coming.mean, coming.square)
        return total

    def _look_out(self, program: str, now_ns: int) -> _Outlook:
        due: list[Due] = []
        coming: list[_Coming] = []
        for workflow, visits in self._visits.items():
            if visits.has(program):
                due += visits.due(program, now_ns)
                mean, square, delay_s = visits.calls_of_new_request(program)
                if mean:
                    coming.append(_Coming(self._forecasts[workflow], mean, square, delay_s))
        return _Outlook(due, coming)

    def rates_per_s(self, horizon_s: float) -> dict[str, float]:
        """Returns the arrivals per second of each workflow that are expected within a horizon."""
        return {workflow: forecast.rate_per_s(horizon_s) for workflow, forecast in self._forecasts.items()}

    @property
    def num_in_flight(self) -> int:
        """Requests that are followed."""
        return len(self._walks)

    def to_state(self, now_ns: int) -> dict[str, Any]:
        """Returns everything learned, as plain values. Requests in flight are no part of it."""
        self.advance(now_ns)
        return {
            workflow: {"forecast": forecast.to_state(), "paths": self._visits[workflow].to_state()}
            for workflow, forecast in self._forecasts.items()
        }

    def restore(self, state: Mapping[str, Any], now_ns: int, away_s: float = 0.0) -> None:
        """Takes in what was exported `away_s` ago, in place of what is known of the same workflows."""
        for workflow, learned in state.items():
            forecast = ArrivalForecast.from_state(learned["forecast"], now_ns, self._bin_s, self._season_s, away_s)
            self._forecasts[workflow] = forecast
            self._visits[workflow] = WorkflowVisits.from_state(learned["paths"])
