"""Watches what requests do, and foresees which programs they will call.

Traffic is told about each request by the engine, in order, from one thread. What lies ahead of a program is: calls of requests
in flight, by what they have called so far, and calls of requests that are still to come.
"""

from collections.abc import Collection, Mapping
from typing import Any

from dyorc.scaling.counts import NOTHING, Count
from dyorc.scaling.forecast.arrivals import ArrivalForecast
from dyorc.scaling.paths import Paths, Walk

_MAX_WORKFLOWS = 1000
_MAX_REQUESTS = 100_000
"""Requests that are followed at a time; of others only the arrival counts."""
_URGENT_PROBABILITY = 0.05
"""A call at least this likely makes a program that is not ready urgent."""


class Traffic:
    """What requests do and will do: the `Observer` of the engine, and the source of every `Demand`.

    Cost: about 1 us for each call of a request, and a few for its end.

    Attributes:
        is_urgent: Whether a request will probably soon need a program that is not ready. Set here; whoever has asked the policy
            sets it to False.
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
        self._paths: dict[str, Paths] = {}
        self._walks: dict[int, Walk] = {}
        self._unready: frozenset[str] = frozenset()

    def arrived(self, request_id: int, workflow: str, now_ns: int) -> None:
        """A request came."""
        forecast = self._forecasts.get(workflow)
        if forecast is None:
            if len(self._forecasts) >= _MAX_WORKFLOWS:
                return
            forecast = self._forecasts[workflow] = ArrivalForecast(now_ns, self._bin_s, self._season_s)
            self._paths[workflow] = Paths()
        forecast.arrived(now_ns)
        if len(self._walks) < _MAX_REQUESTS and request_id not in self._walks:
            walk = self._walks[request_id] = self._paths[workflow].enter(now_ns)
            if self._unready and walk.paths.leads_to(self._unready, walk.stage, _URGENT_PROBABILITY):
                self.is_urgent = True

    def called(self, request_id: int, program: str, now_ns: int) -> None:
        """A request called a program, for certain."""
        walk = self._walks.get(request_id)
        if walk is None:
            return
        is_first = walk.call(program, now_ns)
        if is_first and self._unready:
            unready = self._unready
            if program in unready or walk.paths.leads_to(unready, walk.stage, _URGENT_PROBABILITY):
                self.is_urgent = True

    def ended(self, request_id: int, now_ns: int) -> None:
        """A request ended, one way or another."""
        walk = self._walks.pop(request_id, None)
        if walk is not None:
            walk.end(now_ns)

    def watch(self, unready: Collection[str]) -> None:
        """Sets the programs that have no warm replica: whatever leads to them is urgent."""
        self._unready = frozenset(unready)

    def advance(self, now_ns: int) -> None:
        """Brings all forecasts up to date."""
        for forecast in self._forecasts.values():
            forecast.advance(now_ns)

    def ahead(self, program: str, start_s: float, end_s: float, now_ns: int) -> Count:
        """Returns how many calls of a program come within a window, in seconds from now; `advance` must have been called."""
        total = NOTHING
        for workflow, paths in self._paths.items():
            if not paths.has(program):
                continue
            total += paths.in_flight(program, start_s, end_s, now_ns)
            mean, square, delay_s = paths.of_new(program)
            if mean:
                forecast = self._forecasts[workflow]
                total += forecast.within(start_s - delay_s, end_s - delay_s).each(mean, square)
        return total

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
            workflow: {"forecast": forecast.to_state(), "paths": self._paths[workflow].to_state()}
            for workflow, forecast in self._forecasts.items()
        }

    def restore(self, state: Mapping[str, Any], now_ns: int, away_s: float = 0.0) -> None:
        """Takes in what was exported `away_s` ago, in place of what is known of the same workflows."""
        for workflow, learned in state.items():
            forecast = ArrivalForecast.from_state(learned["forecast"], now_ns, self._bin_s, self._season_s, away_s)
            self._forecasts[workflow] = forecast
            self._paths[workflow] = Paths.from_state(learned["paths"])
