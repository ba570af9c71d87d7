"""Stabilizes decisions: more replicas only after more have been wanted for a while, and fewer only after fewer have."""

import math
from collections import deque

from dyorc.scaling.model import Bounds


class _SlidingExtreme:
    """The largest number within a sliding window, or with `sign` -1 the smallest.

    Cost: constant on average; memory for as many entries as there are different numbers.
    """

    def __init__(self, sign: int = 1) -> None:
        self._sign = sign
        self._entries: deque[tuple[int, int]] = deque()  # (when, number), numbers falling

    def add(self, number: int, now_ns: int) -> None:
        """Adds the number that holds from now on."""
        number *= self._sign
        while self._entries and self._entries[-1][1] <= number:
            self._entries.pop()
        self._entries.append((now_ns, number))

    def within(self, delay_s: float, now_ns: int) -> int:
        """Returns the extreme of the time since `delay_s` ago. Older numbers are forgotten: the delay may not grow."""
        since_ns = now_ns - int(delay_s * 1e9)
        while len(self._entries) > 1 and self._entries[0][0] <= since_ns:
            self._entries.popleft()
        return self._sign * self._entries[0][1]


class Stabilizer:
    """The number of warm replicas of one program over time.

    Attributes:
        num_warm: As decided last.
        num_processes: Warm and parked ones together.
    """

    def __init__(self, bounds: Bounds, num_processes: int, now_ns: int) -> None:
        self.num_warm = bounds.clamp(bounds.num_at_start)
        self.num_processes = bounds.clamp(max(num_processes, self.num_warm))
        self._least = _SlidingExtreme(-1)
        self._most = _SlidingExtreme()
        self._most_any = _SlidingExtreme()
        self._processes = _SlidingExtreme()
        self._least.add(self.num_warm, now_ns)
        self._most.add(self.num_warm, now_ns)
        self._most_any.add(int(self.num_warm > 0), now_ns)
        self._processes.add(self.num_processes, now_ns)
        self._grew_ns = now_ns
        self._grew_from = self.num_warm

    def stabilize(self, wanted: int, spare: int, bounds: Bounds, now_ns: int) -> tuple[int, str]:
        """Returns how many should be warm now, and why not `wanted`, if it differs.

        Args:
            wanted: Replicas that suffice.
            spare: Replicas that would suffice for a little more; not below `wanted`.
        """
        wanted, spare = bounds.clamp(wanted), bounds.clamp(spare)
        self.num_warm = bounds.clamp(self.num_warm)  # bounds that have changed allow no delay
        self._least.add(wanted, now_ns)
        self._most.add(spare, now_ns)
        self._most_any.add(int(spare > 0), now_ns)
        more = self._least.within(bounds.upscale_delay_s, now_ns)
        fewer = self._most.within(bounds.downscale_delay_s, now_ns)
        delay_s = bounds.downscale_delay_s if bounds.to_zero_delay_s is None else bounds.to_zero_delay_s
        last = self._most_any.within(delay_s, now_ns)
        if bounds.to_zero_delay_s is not None and fewer <= 1 and wanted == 0:
            fewer = last  # the last one has its own delay, shorter or longer
        if wanted > self.num_warm:
            if more <= self.num_warm:
                return self.num_warm, f"more than {self.num_warm} not yet wanted for {bounds.upscale_delay_s:g} s"
            return self._grow(more, bounds), ""
        if spare < self.num_warm:
            if fewer >= self.num_warm:
                return self.num_warm, f"{self.num_warm} kept: fewer not yet wanted for {bounds.downscale_delay_s:g} s"
            return self._shrink(max(fewer, wanted), bounds), ""
        return self.num_warm, ""

    def limit_growth(self, num_warm: int, max_step: int, interval_s: float, now_ns: int) -> int:
        """Returns at most what a program may grow to within one interval: by `max_step`, or to twice its size."""
        if now_ns - self._grew_ns >= interval_s * 1e9:
            self._grew_ns, self._grew_from = now_ns, self.num_warm
        return min(num_warm, max(self._grew_from + max_step, 2 * self._grew_from, self.num_warm))

    def keep_processes(self, num_processes: int, bounds: Bounds, now_ns: int) -> int:
        """Returns how many processes there should be: what was wanted, or was there, within the last `cold_delay_s`."""
        self._processes.add(bounds.clamp(num_processes), now_ns)
        return bounds.clamp(self._processes.within(bounds.cold_delay_s, now_ns))

    def _grow(self, wanted: int, bounds: Bounds) -> int:
        step = max(math.ceil((wanted - self.num_warm) * bounds.upscaling_factor), 1)
        return bounds.clamp(self.num_warm + step)

    def _shrink(self, wanted: int, bounds: Bounds) -> int:
        step = max(math.floor((self.num_warm - wanted) * min(bounds.downscaling_factor, 1.0)), 1)
        return bounds.clamp(self.num_warm - step)
