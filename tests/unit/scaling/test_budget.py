"""Who gets what when there is not enough for all."""

from collections import Counter

import pytest

from dyorc.config import BudgetConfig
from dyorc.scaling.device_budget import DeviceBudget, DeviceClaim
from dyorc.scaling.model import Bounds, Cost, LeadTimes, ProgramLoad, ReplicaCounts


def _claim(program: str, num_warm: int, value: float, *, min_warm: int = 0, warm: int = 0, num_parked: int = 0) -> DeviceClaim:
    load = ProgramLoad(
        program=program,
        bounds=Bounds(min_warm=min_warm, max_replicas=8),
        cost=Cost(num_cpus=1, warm_bytes=100, parked_bytes=40),
        counts=ReplicaCounts(warm=warm),
        lead=LeadTimes(0.3, 3.0),
    )
    return DeviceClaim(load, num_warm, num_parked, lambda number: value / number)


def _granted(budget: BudgetConfig, *claims: DeviceClaim) -> list[tuple[int, int]]:
    return [(grant.num_warm, grant.num_parked) for grant in DeviceBudget(budget, swap_margin=1.5).share(claims)]


def test_without_limits_all_get_what_they_claim() -> None:
    assert _granted(BudgetConfig(), _claim("a", 8, 1), _claim("b", 8, 1, num_parked=3)) == [(8, 0), (8, 3)]


def test_the_least_valuable_replica_is_parked_and_the_other_waits_for_its_room() -> None:
    full = BudgetConfig(max_cpus=4)
    cheap, dear = _claim("cheap", 4, 1, warm=4), _claim("dear", 1, 100)
    grants = DeviceBudget(full, swap_margin=1.5).share([cheap, dear])
    assert [(grant.num_warm, grant.num_parked) for grant in grants] == [(3, 1), (0, 0)]
    assert "do not fit into the budget" in grants[0].reason
    assert "wait until others have given up their room" in grants[1].reason
    assert _granted(full, _claim("cheap", 4, 1, warm=3), dear) == [(3, 1), (1, 0)]


def test_a_warm_replica_makes_room_only_for_a_clearly_more_valuable_one() -> None:
    full = BudgetConfig(max_cpus=1)
    assert _granted(full, _claim("here", 1, 10, warm=1), _claim("there", 1, 14))[0][0] == 1
    assert _granted(full, _claim("here", 1, 10, warm=1), _claim("there", 1, 16))[0][0] == 0


def test_min_warm_is_never_taken() -> None:
    full = BudgetConfig(max_cpus=2)
    assert _granted(full, _claim("kept", 2, 0, min_warm=1, warm=1), _claim("dear", 5, 100))[0][0] == 1
    assert _granted(full, _claim("a", 2, 1, min_warm=2), _claim("b", 2, 1, min_warm=2)) == [(2, 0), (2, 0)]


def test_memory_is_for_warm_replicas_first() -> None:
    assert _granted(BudgetConfig(max_bytes=250), _claim("a", 2, 1, num_parked=3)) == [(2, 1)]


def _on(device: str, program: str, value: float, *, num_gpus: float, warm: int = 0, parked: int = 0) -> DeviceClaim:
    """Returns the claim of one warm replica by a program with processes on a device."""
    load = ProgramLoad(
        program=program,
        bounds=Bounds(min_warm=0, max_replicas=4),
        cost=Cost(num_gpus=num_gpus),
        counts=ReplicaCounts(warm=warm, parked=parked),
        lead=LeadTimes(0.3, 3.0),
        warm_on=Counter({device: warm} if warm else {}),
        parked_on=Counter({device: parked} if parked else {}),
    )
    return DeviceClaim(load, 1, 0, lambda number: value / number)


def test_what_does_not_fit_on_one_device_takes_turns_by_value() -> None:
    here = _on("n/0", "here", 10, num_gpus=0.6, warm=1)
    assert _granted(BudgetConfig(), here, _on("n/0", "there", 14, num_gpus=0.6, parked=1)) == [(1, 0), (0, 1)]
    assert _granted(BudgetConfig(), here, _on("n/0", "there", 16, num_gpus=0.6, parked=1)) == [(0, 1), (1, 0)]


def test_what_fits_on_one_device_or_is_on_two_is_warm_together() -> None:
    halves = [_on("n/0", name, 1, num_gpus=0.5, parked=1) for name in "ab"]
    assert _granted(BudgetConfig(), *halves) == [(1, 0), (1, 0)]
    apart = [_on(f"n/{name}", name, 1, num_gpus=0.6, parked=1) for name in "ab"]
    assert _granted(BudgetConfig(), *apart) == [(1, 0), (1, 0)]


def test_a_process_that_does_not_exist_yet_may_be_on_any_device() -> None:
    assert _granted(BudgetConfig(), _on("n/0", "a", 2, num_gpus=0.6, warm=1), _on("", "b", 1, num_gpus=0.6)) == [(1, 0), (1, 0)]


def _spread(program: str, num_warm: int, value: float, warm_on: str, parked_on: str = "") -> DeviceClaim:
    """Returns the claim of a program that takes 0.6 of a device, with a process on each of these devices, named by a letter."""
    load = ProgramLoad(
        program=program,
        bounds=Bounds(min_warm=0, max_replicas=4),
        cost=Cost(num_gpus=0.6),
        counts=ReplicaCounts(warm=len(warm_on), parked=len(parked_on)),
        lead=LeadTimes(0.3, 3.0),
        warm_on=Counter(warm_on),
        parked_on=Counter(parked_on),
    )
    return DeviceClaim(load, num_warm, 0, lambda number: value / number)


@pytest.mark.parametrize("value", [1, 100])
@pytest.mark.parametrize("needed", ["a", "b"])
def test_the_replica_on_the_device_that_another_needs_is_the_one_that_goes(value: float, needed: str) -> None:
    wide, other = _spread("wide", 1, 10, "ab"), _spread("other", 1, value, "", needed)
    grants = DeviceBudget(BudgetConfig(), swap_margin=1.5).share([wide, other])
    assert [(grant.num_warm, grant.most_on) for grant in grants] == [(1, {needed: 0}), (1, {})]
    assert grants[0].reason == f"others need room on {needed}"


def test_a_replica_moves_to_where_its_program_is_parked_if_another_needs_its_device() -> None:
    wide, other = _spread("wide", 1, 10, "a", "b"), _spread("other", 1, 1, "", "a")
    grants = DeviceBudget(BudgetConfig(), swap_margin=1.5).share([wide, other])
    assert [(grant.num_warm, grant.most_on) for grant in grants] == [(1, {"a": 0}), (1, {})]


def test_where_nobody_needs_room_no_device_is_left() -> None:
    grants = DeviceBudget(BudgetConfig(), swap_margin=1.5).share([_spread("wide", 1, 10, "ab"), _spread("other", 1, 1, "c")])
    assert [grant.most_on for grant in grants] == [{}, {}]
