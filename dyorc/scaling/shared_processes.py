"""Programs that share processes are scaled as one: each process has a replica of all of them.

They take turns in a process, so what they need adds up: a program that is busy for half of a process's time and one that is busy
for 0.7 of it need 1.2 processes together. The most that any of them needs would be too few.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dyorc.scaling.model import Bounds, Cost, LeadTimes, ProgramLoad
from dyorc.scaling.need import Need


def loads_by_group(loads: Iterable[ProgramLoad]) -> list[list[ProgramLoad]]:
    """Returns programs as the groups that share processes, each where its first program is; most are alone."""
    groups: dict[tuple[bool, str], list[ProgramLoad]] = {}
    for load in loads:
        groups.setdefault((bool(load.group), load.group or load.program), []).append(load)
    return list(groups.values())


def joint_bounds(all_bounds: Sequence[Bounds]) -> Bounds:
    """Returns the bounds of programs that share processes: the most that any declares, of numbers as well as of delays.

    The limit of calls for each replica stays that of each program, and is None here.
    """
    if len(all_bounds) == 1:
        return all_bounds[0]
    firsts = [each.num_at_start for each in all_bounds]
    to_zero = [each.downscale_delay_s if each.to_zero_delay_s is None else each.to_zero_delay_s for each in all_bounds]
    return Bounds(
        min_warm=max(each.min_warm for each in all_bounds),
        max_replicas=max(each.max_replicas for each in all_bounds),
        initial_warm=None if all(each.initial_warm is None for each in all_bounds) else max(firsts),
        upscale_delay_s=max(each.upscale_delay_s for each in all_bounds),
        downscale_delay_s=max(each.downscale_delay_s for each in all_bounds),
        to_zero_delay_s=None if all(each.to_zero_delay_s is None for each in all_bounds) else max(to_zero),
        cold_delay_s=max(each.cold_delay_s for each in all_bounds),
        upscaling_factor=max(each.upscaling_factor for each in all_bounds),
        downscaling_factor=min(each.downscaling_factor for each in all_bounds),
    )


def joint_load(group: Sequence[ProgramLoad]) -> ProgramLoad:
    """Returns programs that share processes as one, under the name of the first; what each needs is added up by `joint_need`.

    A process is as warm as its coldest program, and its programs are loaded one after another.
    """
    first = group[0]
    if len(group) == 1:
        return first
    coldest = min(group, key=lambda load: load.counts.warm)
    from_parked_s = sum(load.lead.from_parked_s for load in group)
    start_s = max(load.lead.from_cold_s - load.lead.from_parked_s for load in group)
    costs = [load.cost for load in group]
    return replace(
        coldest,
        program=first.program,
        bounds=joint_bounds([load.bounds for load in group]),
        cost=Cost(
            num_cpus=max(cost.num_cpus for cost in costs),
            num_gpus=max(cost.num_gpus for cost in costs),
            warm_bytes=max(cost.warm_bytes for cost in costs),
            parked_bytes=max(cost.parked_bytes for cost in costs),
        ),
        lead=LeadTimes(from_parked_s, start_s + from_parked_s),
        num_queued=sum(load.num_queued for load in group),
        num_running=sum(load.num_running for load in group),
        most_possible=min((load.most_possible for load in group if load.most_possible is not None), default=None),
    )


def joint_need(needs: Sequence[Need]) -> Need:
    """Returns what programs need together that take turns in their processes."""
    most = max(needs, key=lambda need: need.replicas)
    if len(needs) == 1:
        return most
    num_others = sum(need.replicas > 0 for need in needs) - (most.replicas > 0)
    reason = f"{most.reason}; with {num_others} more of its group" if num_others else most.reason
    return Need(sum(need.replicas for need in needs), sum(need.keep for need in needs), reason)
