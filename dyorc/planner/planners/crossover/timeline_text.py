"""Draws merged jobs as text: what uses the devices and what uses the network, over time."""

from collections.abc import Iterator
from string import ascii_uppercase

from dyorc.planner.planners.crossover.merge import MergedJobs
from dyorc.planner.planners.crossover.phases import Resource


def letter_of(job: int) -> str:
    """Returns the letter of a job."""
    return ascii_uppercase[job % len(ascii_uppercase)]


def rows_of(merged: MergedJobs, *, num_periods: int = 2, width: int = 40) -> Iterator[tuple[Resource, str]]:
    """Yields, for each resource, whose phases it is used for over some periods in the middle of the run; a dot is idle time.

    Args:
        merged: What is drawn.
        num_periods: How many periods.
        width: How many characters each period has.
    """
    for resource in Resource:
        cells = ["."] * width
        for number, job in enumerate(merged.jobs):
            for phase, start in zip(job.phases, job.starts, strict=True):
                if phase.resource is resource:
                    begin = start % merged.period * width / merged.period
                    end = begin + phase.seconds / merged.period_s * width
                    for cell in range(round(begin), max(round(end), round(begin) + 1)):
                        cells[cell % width] = letter_of(number)
        yield resource, "|".join(["".join(cells)] * num_periods)
