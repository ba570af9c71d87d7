"""How a server's slots for jobs are shared: by weight, and never all with one lane, model or tenant."""

from collections import Counter

from dyorc.gateway.jobs.job_slots import JobSlot, JobSlots
from dyorc.store.base import Lane

A, B = Lane("a", "slow"), Lane("b", "quick")


def fill(slots: JobSlots, lane: Lane, weight: float = 1.0) -> list[JobSlot]:
    return [slots.take(one.tenant, one.model_name, weight) for one in slots.pick([lane])]


def test_a_lone_lane_leaves_a_fifth_free() -> None:
    assert len(JobSlots(40).pick([A])) == 32
    assert [len(JobSlots(num).pick([A])) for num in (1, 2, 5)] == [1, 1, 4]


def test_another_tenants_job_for_another_model_never_waits_for_a_flood() -> None:
    slots = JobSlots(8)
    fill(slots, A)
    assert A not in slots.pick([A, B])
    assert B in slots.pick([A, B])


def test_a_tenants_own_job_for_another_model_does_not_wait_either() -> None:
    slots = JobSlots(40)
    fill(slots, A)
    assert Lane("a", "quick") in slots.pick([A, Lane("a", "quick")])


def test_one_model_never_has_all_slots_whichever_tenants_ask() -> None:
    slots = JobSlots(40)
    for number in range(40):
        fill(slots, Lane(f"t{number}", "slow"))
    assert Lane("new", "quick") in slots.pick([Lane("new", "quick")])


def test_slots_are_shared_by_weight_whatever_jobs_take() -> None:
    for lengths in ((1.0, 1.0), (5.0, 0.5)):
        slots, held_s = JobSlots(1), Counter[str]()
        for _ in range(4000):
            (lane,) = slots.pick([A, B])
            length_s = lengths[lane is B]
            slots.take(lane.tenant, lane.model_name, 3.0 if lane is A else 1.0).give_back(length_s)
            held_s[lane.tenant] += length_s
        assert 2.8 < held_s["a"] / held_s["b"] < 3.2


def test_an_idle_tenant_earns_no_credit_and_an_absent_one_keeps_its_debt() -> None:
    slots = JobSlots(1)
    for _ in range(100):
        (lane,) = slots.pick([A])
        slots.take(lane.tenant, lane.model_name, 1.0).give_back(1.0)
    turns: list[Lane] = []
    for _ in range(10):
        (lane,) = slots.pick([A, B])
        slots.take(lane.tenant, lane.model_name, 1.0).give_back(1.0)
        turns.append(lane)
    assert turns.count(A) == turns.count(B) == 5


def test_urgent_jobs_of_a_tenant_go_first_but_not_before_other_tenants() -> None:
    slots, urgent = JobSlots(1), Lane("a", "slow", True)
    turns: list[Lane] = []
    for _ in range(4):
        (lane,) = slots.pick([A, urgent, B])
        slots.take(lane.tenant, lane.model_name, 1.0).give_back(1.0)
        turns.append(lane)
    assert (turns.count(urgent), turns.count(B)) == (2, 2)
