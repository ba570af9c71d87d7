"""Programs that share processes have one number of replicas."""

from typing import Any

import pytest

from dyorc.config import ScalingConfig
from dyorc.scaling.model import Bounds, Cost, LeadTimes, ProgramLoad, ReplicaCounts, Speed
from dyorc.scaling.need import Need
from dyorc.scaling.policy import PredictivePolicy
from dyorc.scaling.shared_processes import joint_bounds, joint_load, joint_need, loads_by_group
from dyorc.scaling.traffic import Traffic

_S = 1_000_000_000


def load(program: str, group: str = "lm", **changes: Any) -> ProgramLoad:
    values: dict[str, Any] = {
        "bounds": Bounds(min_warm=1, max_replicas=8), "cost": Cost(), "counts": ReplicaCounts(warm=1),
        "lead": LeadTimes(0.1, 1.0), "speed": Speed(0.01, 0.01, 1),
    }  # fmt: skip
    return ProgramLoad(program=program, group=group, **{**values, **changes})


def decide(*loads: ProgramLoad) -> dict[str, tuple[int, int]]:
    policy = PredictivePolicy(ScalingConfig(), Traffic())
    return {each.program: (each.num_warm, each.num_parked) for each in policy.decide(loads, _S)}


def test_groups_are_together_and_others_alone_even_under_the_same_name() -> None:
    loads = [load("prefill"), load("lm", group=""), load("decode"), load("other", group="")]
    assert [[each.program for each in group] for group in loads_by_group(loads)] == [["prefill", "decode"], ["lm"], ["other"]]


def test_what_programs_of_a_group_need_adds_up() -> None:
    needs = [Need(0.5, 0.6, "some"), Need(0.7, 0.8, "more"), Need(0.0, 0.0, "nothing")]
    assert joint_need(needs) == Need(pytest.approx(1.2), pytest.approx(1.4), "more; with 1 more of its group")
    assert joint_need(needs[:1]) is needs[0]


def test_all_programs_of_a_group_get_what_they_need_together() -> None:
    busy = {"bounds": Bounds(min_warm=1, max_replicas=8, target_calls=2.0), "num_queued": 3, "speed": None}
    alone = decide(load("prefill", group="", **busy), load("decode", group="", **busy))
    assert alone == {"prefill": (2, 0), "decode": (2, 0)}
    together = decide(load("prefill", **busy), load("decode", **busy), load("verify"))
    assert together == {"prefill": (3, 0), "decode": (3, 0), "verify": (3, 0)}, "1.5 and 1.5 processes' time"


def test_an_order_for_one_program_is_for_its_group() -> None:
    policy = PredictivePolicy(ScalingConfig(), Traffic())
    policy.override("decode", 4, 1)
    decided = policy.decide([load("prefill"), load("decode"), load("alone", group="")], _S)
    assert {each.program: (each.num_warm, each.num_parked) for each in decided} == {
        "prefill": (4, 1), "decode": (4, 1), "alone": (1, 0),
    }  # fmt: skip


def test_a_group_is_as_warm_as_its_coldest_program_and_loads_one_after_another() -> None:
    one = load("prefill", counts=ReplicaCounts(warm=2), lead=LeadTimes(2.0, 3.0), num_queued=1, num_running=2)
    other = load("decode", counts=ReplicaCounts(warm=1, warming=1), lead=LeadTimes(1.0, 4.0), num_queued=3, most_possible=1)
    joint = joint_load([one, other])
    assert (joint.program, joint.counts, joint.lead) == ("prefill", other.counts, LeadTimes(3.0, 6.0))
    assert (joint.num_queued, joint.num_running, joint.most_possible) == (4, 2, 1)
    assert joint_load([one]) is one


def test_joint_bounds_are_the_widest() -> None:
    fast = Bounds(min_warm=0, max_replicas=4, downscale_delay_s=5, target_calls=2, downscaling_factor=0.5)
    slow = Bounds(min_warm=1, max_replicas=2, initial_warm=2, downscale_delay_s=60, to_zero_delay_s=90)
    expected = Bounds(
        min_warm=1, max_replicas=4, initial_warm=2, downscale_delay_s=60, to_zero_delay_s=90, downscaling_factor=0.5
    )  # fmt: skip
    assert joint_bounds([fast, slow]) == expected
    assert joint_bounds([fast]) is fast
