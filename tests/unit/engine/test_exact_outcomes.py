"""Values that Python calls equal, where guesses, journals and batches look values up: plain Python's results come out."""

import copy
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.guessing.prediction import Predictor
from dyorc.errors import WorkflowError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, Vectors, double
from tests.unit.engine.speculative_world import Says, counts, warm


class Level(IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


@dataclass(frozen=True)
class Choice:
    size: int
    label: str = field(compare=False)


def text_of(outcome: Any) -> str:
    """Spells out an outcome: what a workflow can tell apart differs."""
    label = outcome.label if isinstance(outcome, Choice) else ""
    items = [text_of(item) for item in outcome] if isinstance(outcome, tuple) else ()
    return f"{type(outcome).__name__} {outcome!r} {label} {items}"


TWINS: list[tuple[Hashable, Hashable]] = [
    (0.0, -0.0),
    (True, 1),
    (1, 1.0),
    (0, False),
    (Level.ONE, 1),
    (Text("a"), "a"),
    ((0.0,), (-0.0,)),
    ((1, (True,)), (True, (1,))),
    ((np.float32(1),), (1.0,)),
    (frozenset([0.0]), frozenset([-0.0])),
    (Choice(1, "a"), Choice(1, "b")),
    (1 + 0j, 1),
]


def world_of(predictor: Predictor | None = None, max_determinism_checks: int = 0) -> World:
    """Makes a world that guesses, with determinism checked for as many requests: a check would notice wrong guesses."""
    config = EngineConfig(hold=False, max_determinism_checks=max_determinism_checks)
    world = World([mark, double], config, predictor=predictor)
    for program in world.programs:
        world.join(program)
        warm(world, program)
    return world


@dyorc.program(max_batch_size=4)
def mark(x: Vectors, text: str) -> Vectors:
    return x + sum(text.encode())


def marked(text: str) -> float:
    return float(np.float32(sum(text.encode()) + 1))


def chooser(key: Callable[[Any], Any], likely: Hashable = None) -> dyorc.Workflow:
    @dyorc.workflow
    async def choosing(x: Vector) -> Vector:
        outcome = await dyorc.choose(double(x), key, likely=likely)
        y = mark(x, text_of(outcome))
        again = await dyorc.choose(y, lambda v: outcome)
        return mark(x, text_of(again))

    return choosing


@pytest.mark.parametrize(("guess", "truth"), [*TWINS, *[(b, a) for a, b in TWINS]])
@pytest.mark.parametrize("source", ["predictor", "likely", "history"])
def test_a_guess_that_is_only_equal_to_the_outcome_is_wrong(guess: Hashable, truth: Hashable, source: str) -> None:
    world = world_of(Says({guess: 0.9}) if source == "predictor" else None)
    outcomes = [guess] * 8 if source == "history" else []
    workflow = chooser(lambda v: outcomes.pop() if outcomes else truth, guess if source == "likely" else None)
    for _ in range(len(outcomes)):
        world.submit(workflow, [1, 1])
        world.finish_all()
    outcomes.clear()
    request_id = world.submit(workflow, [1, 1])
    world.finish_all()
    assert world.result(request_id).tolist() == [marked(text_of(truth))] * 2
    world.check_nothing_is_left()


@pytest.mark.parametrize(
    "truth",
    [math.nan, 1.0, 1, Level.ONE, (math.nan, -0.0), Choice(1, "a"), Text("a"), (np.float32("nan"),), frozenset(["a", 1])],
)
def test_a_guess_that_is_identical_to_the_outcome_is_right(truth: Any) -> None:
    world = world_of(Says({truth: 0.9}), 3)
    request_id = world.submit(chooser(lambda v: copy.deepcopy(truth)), [1, 1])
    world.finish_all()
    assert world.result(request_id).tolist() == [marked(text_of(truth))] * 2
    assert sum(world.sizes(mark)) == 2, "nothing was run in vain"
    assert counts(world)[2] == 0


def test_a_usual_outcome_of_numpy_is_taken_as_the_number_that_a_key_returns() -> None:
    world = world_of()
    world.submit(chooser(lambda v: v[0], likely=np.float32(2)), [1, 1])
    world.finish_all()
    assert counts(world)[1] > 0
    assert counts(world)[2] == 0


def test_a_mutable_outcome_is_not_handed_to_other_requests() -> None:
    class Bag:
        def __init__(self) -> None:
            self.items: list[int] = []

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Bag)

        def __hash__(self) -> int:
            return 1

    @dyorc.workflow
    async def filling(x: Vector) -> Vector:
        bag = await dyorc.choose(double(x), lambda v: Bag(), likely=Bag())
        bag.items.append(1)
        return mark(x, "a" * len(bag.items))

    world = world_of()
    for _ in range(20):
        request_id = world.submit(filling, [1, 1])
        world.finish_all()
        assert world.result(request_id).tolist() == [marked("a")] * 2


@pytest.mark.parametrize("outcome", [[1], {1: 2}, {1}, np.zeros(2), (1, [2])])
def test_an_outcome_that_is_not_hashable_is_refused(outcome: Any) -> None:
    world = world_of()
    request_id = world.submit(chooser(lambda v: outcome), [1, 1])
    world.finish_all()
    with pytest.raises(
        WorkflowError, match=r"workflow '.*': the key of a decision returned \w+ .*, which is not hashable \(.*, line \d+\)"
    ):
        world.result(request_id)


def test_a_usual_outcome_that_is_not_hashable_is_refused() -> None:
    world = world_of()
    request_id = world.submit(chooser(lambda v: 1, likely=[1]), [1, 1])  # type: ignore[arg-type]
    world.finish_all()
    with pytest.raises(WorkflowError, match="unhashable"):
        world.result(request_id)


@dyorc.program(max_batch_size=8)
def angle(x: Vectors, imag: float) -> Vectors:
    return np.arctan2(np.float32(imag), x)


@dyorc.workflow
async def angle_of(x: Vector, imag: float) -> Vector:
    y = angle(x, imag)
    await y
    return y


def test_calls_with_zeros_of_both_signs_share_no_batch() -> None:
    never = SpeculationConfig(enabled=False)
    world = World([angle], EngineConfig(max_determinism_checks=100, speculation=never))
    world.join(angle)
    zeros = [0.0, -0.0] * 8
    ids = [world.submit(angle_of, [-1, -1], imag=zero) for zero in zeros]
    world.finish_all()
    for request_id, zero in zip(ids, zeros, strict=True):
        assert world.result(request_id).tolist() == [float(np.arctan2(np.float32(zero), np.float32(-1)))] * 2
    assert max(world.sizes(angle)) > 1


def test_nan_is_a_static_parameter_like_others() -> None:
    never = SpeculationConfig(enabled=False)
    world = World([angle], EngineConfig(max_determinism_checks=100, speculation=never))
    world.join(angle)
    ids = [world.submit(angle_of, [1, 1], imag=float("nan")) for _ in range(5)]
    world.finish_all()
    assert all(np.isnan(world.result(request_id)).all() for request_id in ids)
    assert world.sizes(angle) == [1, 4]
