"""Schedules that repeat: the exact periods of Tessel's placements by two searches that share nothing, and what every schedule is
held to.
"""

import random
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from benchmarks.papers.tessel_search import enumerate_schedules, least_makespan
from benchmarks.papers.tessel_shapes import SHAPES
from dyorc.errors import PlanError
from dyorc.planner.plan import SearchEnd
from dyorc.planner.planners.modulo.modulo_blocks import ModuloBlock, ModuloProblem
from dyorc.planner.planners.modulo.period_search import PeriodSearchLimits, best_without_search, shortest_period
from dyorc.planner.planners.modulo.timeline import Entry, UnrolledTimeline
from dyorc.planner.planners.modulo.warm_up import with_ends

_BY_DEPTH = {"V": (12, 4, 4, 0, 0), "X": (8, 2, 0, 0), "K": (4, 1, 0, 0), "M": (12, 5, 4, 2, 1, 0), "NN": (12, 5, 4, 2, 1, 0)}
_BY_MEMORY = {
    "V": (12, 4, 4, 0),
    "X": (None, 5, 1, 0),
    "K": (None, 2, 0),
    "M": (12, 4, 4, 1, 0),
    "NN": (None, None, None, 1, 1, 0),
}
_WHOLE = {"V": (16, 20, 24), "K": (10, 16, 22), "M": (18, 24, 30)}
_OF_32 = {"V": 140, "X": 265, "K": 196, "M": 204}


@pytest.mark.parametrize("shape", SHAPES)
def test_bubbles_by_depth_are_the_published_ones_by_both_searches(shape: str) -> None:
    problem = SHAPES[shape]().with_capacity(16)
    for depth, bubbles in enumerate(_BY_DEPTH[shape], 1):
        found = shortest_period(problem, PeriodSearchLimits(depth=depth, shorten=False))
        assert (found.repetend.bubbles, found.is_optimal, found.repetend.depth <= depth) == (bubbles, True, True), depth
        if shape != "NN" or depth < 4:
            assert enumerate_schedules(problem, depth).repetend.bubbles == bubbles, depth


@pytest.mark.parametrize("shape", SHAPES)
def test_bubbles_by_memory_are_the_published_ones(shape: str) -> None:
    for units, bubbles in enumerate(_BY_MEMORY[shape], 1):
        if bubbles is not None:  # NN with less memory takes seconds: `python -m benchmarks.papers tessel` has it
            found = shortest_period(SHAPES[shape]().with_capacity(units), PeriodSearchLimits(shorten=False))
            assert (found.repetend.bubbles, found.is_optimal) == (bubbles, True), units
            timeline = found.repetend.unroll(10)
            assert timeline.faults() == []
            assert max(timeline.peaks.values()) <= units


@pytest.mark.parametrize("shape", _WHOLE)
def test_whole_problems_have_the_published_spans(shape: str) -> None:
    for num_parts, span in enumerate(_WHOLE[shape], 1):
        found = least_makespan(SHAPES[shape]().with_capacity(16), num_parts)
        assert (found.timeline.makespan, found.is_optimal, found.timeline.faults()) == (span, True, [])


@pytest.mark.parametrize("shape", _OF_32)
def test_any_number_of_microbatches_follows_from_one_period(shape: str) -> None:
    found = shortest_period(SHAPES[shape]().with_capacity(16)).repetend
    schedule = with_ends(found)
    for num_parts in (1, 2, found.depth, 32):
        timeline = schedule.unroll(num_parts)
        assert timeline.faults() == []
        assert len(timeline.entries) == num_parts * len(found.problem.blocks)
    assert schedule.unroll(32).makespan <= _OF_32[shape]


@pytest.mark.parametrize("seed", range(12))
def test_both_searches_agree_on_any_problem(seed: int) -> None:
    problem = _random(random.Random(seed))
    found, other = shortest_period(problem, PeriodSearchLimits(depth=4)), enumerate_schedules(problem, 4)
    assert found.is_optimal
    assert found.repetend.period == other.repetend.period
    for repetend in (found.repetend, other.repetend, best_without_search(problem, 4)):
        assert repetend.unroll(7).faults() == []
        assert with_ends(repetend).unroll(7).faults() == []


def _random(draw: random.Random) -> ModuloProblem:
    """Two chains that meet, forward and back, of blocks with any spans on any of three devices; some on two at a time.

    In half of them a block waits for one of the repetition before.
    """
    forward: list[ModuloBlock] = []
    for number in range(4):
        devices = tuple(draw.sample(["a", "b", "c"], draw.choice([1, 1, 2])))
        after: Sequence[int] = [] if number < 2 else [number - 2] if number == 2 else [1, 2]
        names = tuple(forward[index].name for index in after)
        forward.append(
            ModuloBlock(name=f"f{number}", span=draw.randint(1, 3), resources=devices, memory=draw.randint(0, 2), after=names)
        )
    backward: list[ModuloBlock] = []
    for block in reversed(forward):
        name = backward[-1].name if backward else block.name
        resources, memory = block.resources, -block.memory
        backward.append(
            ModuloBlock(name=f"b{block.name}", span=draw.randint(1, 4), resources=resources, memory=memory, after=(name,))
        )
    capacities = dict.fromkeys("abc", draw.randint(6, 8))
    carried = ((draw.choice(backward).name, draw.choice(forward).name),) if draw.random() < 0.5 else ()
    return ModuloProblem((*forward, *backward), capacities, carried)


def test_the_next_repetition_may_wait_for_one_of_the_last() -> None:
    blocks = (ModuloBlock(name="a", span=3, resources=("x",)), ModuloBlock(name="b", span=2, resources=("y",), after=("a",)))
    assert shortest_period(ModuloProblem(blocks)).repetend.period == 3
    found = shortest_period(ModuloProblem(blocks, carried=(("b", "a"),)))
    assert (found.repetend.period, found.is_optimal) == (5, True)
    early = UnrolledTimeline(found.repetend.problem, (Entry(0, 0, blocks[0]), Entry(3, 0, blocks[1]), Entry(3, 1, blocks[0])))
    assert early.faults() == ["a #1 starts at 3, before b #0 has ended"]


def _with_transfers(problem: ModuloProblem, span: int, *, takes_link: bool = True) -> ModuloProblem:
    """Adds transfers: a block between each two that depend on each other and share no resource.

    Args:
        problem: Without communication.
        span: How long each transfer takes.
        takes_link: Whether it takes the link between the two first resources, in its direction, for itself; otherwise it is a
            delay, and any number of them run at the same time.
    """
    blocks: list[ModuloBlock] = []
    for block in problem.blocks:
        after: list[str] = []
        for name in block.after:
            sender = problem.by_name[name]
            if sender.resources and block.resources and set(sender.resources).isdisjoint(block.resources):
                link = (f"{sender.resources[0]} -> {block.resources[0]}",) if takes_link else ()
                blocks.append(ModuloBlock(name=f"{name} -> {block.name}", span=span, resources=link, after=(name,)))
                name = blocks[-1].name
            after.append(name)
        blocks.append(replace(block, after=tuple(after)))
    return replace(problem, blocks=tuple(blocks))


def test_transfers_take_links_or_only_time() -> None:
    plain = SHAPES["V"](2)
    delayed, linked = _with_transfers(plain, 5, takes_link=False), _with_transfers(plain, 5)
    assert shortest_period(plain).repetend.period == 4
    assert shortest_period(delayed).repetend.period == 4  # any number of transfers are under way at a time
    assert shortest_period(linked).repetend.period == 5  # the links are the busiest
    assert shortest_period(linked.with_capacity(2)).repetend.period > 5
    assert shortest_period(linked).repetend.unroll(9).faults() == []


def test_faults_are_found() -> None:
    problem = SHAPES["V"](2).with_capacity(1)
    first, second, third, fourth = problem.blocks
    early = UnrolledTimeline(problem, (Entry(0, 0, first), Entry(0, 0, second), Entry(1, 0, third), Entry(4, 0, fourth)))
    assert early.faults() == ["f 1 #0 starts at 0, before f 0 has ended"]
    twice = UnrolledTimeline(problem, (Entry(0, 0, first), Entry(0, 1, first)))
    assert twice.faults() == ["f 0 #0 and f 0 #1 overlap on device 0", "device 0 needs 2 units of memory and has 1"]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(PlanError, match="one repetition alone needs 2 units of memory on device 0, which has 1"):
        shortest_period(SHAPES["X"]().with_capacity(1))
    with pytest.raises(PlanError, match=r"each repetition leaves \+1 units of memory on device 0, and must leave none"):
        ModuloProblem(SHAPES["V"]().blocks[:1])
    with pytest.raises(PlanError, match="the next repetition waits for c, and there is no such block"):
        ModuloProblem((ModuloBlock(name="a", span=1, resources=("x",)),), carried=(("c", "a"),))
    with pytest.raises(PlanError, match="block f 1 waits for f 0, which does not come before it"):
        ModuloProblem(SHAPES["V"]().blocks[1:])


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """Also where the tests run in a process that began with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_keeps_the_best_schedule() -> None:
    """NN with little memory is searched for seconds; the schedule without a search is there at once."""
    problem, heard = SHAPES["NN"](8).with_capacity(6), list[tuple[int, int]]()

    def listen(bound: int, best: int) -> None:
        heard.append((bound, best))
        if len(heard) == 1:
            threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()

    found = shortest_period(problem, PeriodSearchLimits(work=60.0), listen)
    assert found.ended is SearchEnd.INTERRUPTED
    assert found.repetend.period == heard[-1][1]
    assert found.repetend.unroll(12).faults() == []
