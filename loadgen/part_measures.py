"""Turns the times of parts, of all workers, into figures."""

from collections.abc import Sequence

import numpy as np

from loadgen.measures import Numbers, histogram, quantiles
from loadgen.recording import CORRECT, WRONG, Records
from loadgen.results import PartsResult


def measure_parts(workers: Sequence[Records], warm_up_ns: int, end_ns: int) -> PartsResult:
    """Returns the figures of the requests whose planned time lies in the measured time; times count from the start."""
    found = [_times_of(records, warm_up_ns, end_ns) for records in workers]
    first_ns, between_ns = (np.concatenate(times) for times in zip(*found, strict=True))
    came_ns = np.concatenate([records.part_ns - records.start_ns for records in workers])
    return PartsResult(
        num_parts=sum(int(_is_planned(records, warm_up_ns, end_ns)[records.part_of].sum()) for records in workers),
        parts_per_s=int(((came_ns >= warm_up_ns) & (came_ns < end_ns)).sum()) / ((end_ns - warm_up_ns) / 1e9),
        first_part_ms=quantiles(first_ns),
        between_parts_ms=quantiles(between_ns) if len(between_ns) else None,
        first_part_histogram=histogram(first_ns),
        between_parts_histogram=histogram(between_ns) if len(between_ns) else "",
    )


def _is_planned(records: Records, warm_up_ns: int, end_ns: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    planned_ns = records.planned_ns - records.start_ns
    return (planned_ns >= warm_up_ns) & (planned_ns < end_ns)


def _times_of(records: Records, warm_up_ns: int, end_ns: int) -> tuple[Numbers, Numbers]:
    """Returns for one worker the times to first parts and between parts."""
    is_planned = _is_planned(records, warm_up_ns, end_ns)
    order = np.argsort(records.part_of, kind="stable")  # by request; of one request, in the order in which they came
    part_of, part_ns = records.part_of[order], records.part_ns[order]
    ended_ns = np.where(records.done_ns > 0, records.done_ns, records.ended_ns)

    has_parts, first_at = np.unique(part_of, return_index=True)
    first_ns = ended_ns.copy()
    first_ns[has_parts] = part_ns[first_at]

    is_next = part_of[1:] == part_of[:-1]
    between_ns = np.diff(part_ns)[is_next & is_planned[part_of[1:]]]
    last_at = np.append(first_at[1:], len(part_of)) - 1 if len(has_parts) else first_at
    broke_off = is_planned[has_parts] & ~np.isin(records.outcome[has_parts], (CORRECT, WRONG))
    broken_ns = (ended_ns[has_parts] - part_ns[last_at])[broke_off]
    return (first_ns - records.planned_ns)[is_planned], np.concatenate([between_ns, broken_ns])
