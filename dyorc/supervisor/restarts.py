"""When a cell that ended is started again. Only the standard library."""

_HEALTHY_S = 60.0
"""A cell that lived this long is taken to be well."""


class RestartBackoff:
    """At once the first time; if it dies again and again, later each time, up to a bound.

    Args:
        first_delay_s: The delay before the second restart; each further one doubles it.
        max_delay_s: The bound.
    """

    def __init__(self, first_delay_s: float, max_delay_s: float) -> None:
        self._first_delay_s = first_delay_s
        self._max_delay_s = max_delay_s
        self._num_deaths = 0

    def delay_s(self, lived_s: float) -> float:
        """Returns how long to wait after a cell died that had lived that long."""
        self._num_deaths = 1 if lived_s >= _HEALTHY_S else self._num_deaths + 1
        if self._num_deaths == 1:
            return 0.0
        return min(self._max_delay_s, self._first_delay_s * 2.0 ** min(self._num_deaths - 2, 60))
