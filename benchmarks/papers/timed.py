"""Times of functions that take turns, so that what disturbs one disturbs all."""

import time
from collections.abc import Callable, Sequence
from statistics import median


def seconds_in_turns(runs: Sequence[Callable[[], object]], num_rounds: int, num_warm_ups: int = 0) -> list[float]:
    """Returns each function's median of seconds.

    Args:
        runs: Called one after another, in each round.
        num_rounds: How often.
        num_warm_ups: Rounds before these, which do not count.
    """
    times: list[list[float]] = [[] for _ in runs]
    for number in range(num_warm_ups + num_rounds):
        for run, seconds in zip(runs, times, strict=True):
            begun_s = time.perf_counter()
            run()
            if number >= num_warm_ups:
                seconds.append(time.perf_counter() - begun_s)
    return [median(seconds) for seconds in times]
