"""Using a value without awaiting it raises an error: Python would otherwise answer silently, and wrongly."""

import copy
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float

import dyorc
from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import OutputSpec
from dyorc.engine.model.futures import Future
from dyorc.errors import DyOrcError, ProgramError, WorkflowError

Vector = Float[np.ndarray, "n"]


def ref() -> Ref:
    return Ref(Future(None), OutputSpec.of(Vector, "it"))


MAKERS = {
    "ref": (ref, r"`await` it .*`await dyorc\.when\(ref, predicate\)`"),
    "when": (lambda: dyorc.when(ref()), r"dyorc\.when \(test_awaiting\.py, .*was not awaited.*`await dyorc\.when\(\.\.\.\)`"),
    "choose": (lambda: dyorc.choose(ref()), r"dyorc\.choose .*was not awaited.*`await dyorc\.choose\(\.\.\.\)`"),
    "gather": (lambda: dyorc.gather(ref(), ref()), r"dyorc\.gather of 2 was not awaited.*`a, b = await dyorc\.gather\(\.\.\.\)`"),
}
pending = pytest.mark.parametrize(("make", "advice"), MAKERS.values(), ids=MAKERS)

USES: dict[str, Callable[[Any], object]] = {
    "if": lambda it: 1 if it else 2,
    "not": lambda it: not it,
    "==": lambda it: it == 6.0,
    "== from the right": lambda it: 6.0 == it,  # noqa: SIM300 (the point)
    "!=": lambda it: it != 6.0,
    "== None": lambda it: it == None,  # noqa: E711 (the point)
    "<": lambda it: it < 1,
    "match": lambda it: matched(it),
    "sorted": lambda it: sorted([it, 1]),
    "in": lambda it: 6.0 in it,
    "among others": lambda it: it in [6.0, it],
    "+": lambda it: it + 1,
    "+ from the right": lambda it: 1 + it,
    "**": lambda it: it**2,
    "-": lambda it: -it,
    "round": round,
    "floor": math.floor,
    "float": float,
    "int": int,
    "complex": complex,
    "index": lambda it: range(10)[it],
    "range": range,
    "len": len,
    "for": lambda it: [part for part in it],  # noqa: C416 (the point)
    "unpack": lambda it: unpacked(*it),
    "reversed": reversed,
    "f-string": lambda it: f"score {it}",
    "f-string with a format": lambda it: f"{it:.2f}",
    "str": str,
    "%s": lambda it: "%s" % it,  # noqa: UP031 (the point)
    "array": np.asarray,
    "in an array": lambda it: np.array([it, it]),
    "array *": lambda it: np.ones(3) * it,
    "* array": lambda it: it * np.ones(3),
    "number == ": lambda it: np.float32(6) == it,
    "array == ": lambda it: np.ones(3) == it,
    "mean": np.mean,
    "maximum": lambda it: np.maximum(it, 0),
    "tensor": torch.tensor,
    "tensor *": lambda it: torch.ones(3) * it,
    "tensor == ": lambda it: torch.ones(3) == it,
}


def matched(it: object) -> bool:
    match it:
        case "yes":
            return True
        case _:
            return False


def unpacked(first: object, second: object) -> object:
    return first, second


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pending
def test_an_unawaited_object_answers_no_question(make: Callable[[], object], advice: str, use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=advice):
        use(make())


@pending
def test_an_unawaited_object_can_be_kept_copied_and_shown(make: Callable[[], Any], advice: str) -> None:
    it, other = make(), make()
    assert it is not None
    assert {it: 1, other: 2}[it] == 1
    assert len({it, other, it}) == 2
    assert it in [it, other]
    assert type(copy.copy(it)) is type(it)
    assert repr(it) in f"{it!r} {[it]}"


@pytest.mark.parametrize("make", [dyorc.when, dyorc.choose])
def test_a_decision_shows_where_it_stands(make: Callable[[Ref], object]) -> None:
    assert repr(make(ref())).startswith(f"dyorc.{make.__name__} (test_awaiting.py, line ")


# As workflows meet it


@dyorc.program
def total(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, " batch"]:
    return x.sum(axis=1)


@dyorc.workflow
async def asks_a_decision(x: Vector) -> Vector:
    return x if dyorc.when(total(x), lambda value: value > 10) else x[:1]


@dyorc.workflow
async def compares_a_ref(x: Vector) -> Vector:
    return x if total(x) == 6.0 else x[:1]


@dyorc.workflow
async def prints_a_ref(x: Vector) -> dyorc.Bytes[np.ndarray, ""]:
    return np.array(f"total {total(x)}")


@dyorc.workflow
async def unpacks_a_gather(x: Vector) -> Vector:
    first, _ = dyorc.gather(total(x), total(x))
    return first


@dyorc.workflow
async def returns_a_gather(x: Vector) -> Vector:
    return dyorc.gather(total(x), total(x))


@dyorc.workflow
async def passes_a_decision_on(x: Vector) -> Float[np.ndarray, ""]:
    return total(dyorc.choose(x))


@pytest.mark.parametrize(
    ("workflow", "advice"),
    [
        (asks_a_decision, "await dyorc.when"),
        (compares_a_ref, "await dyorc.when"),
        (prints_a_ref, "await dyorc.when"),
        (unpacks_a_gather, "await dyorc.gather"),
        (returns_a_gather, "await dyorc.gather"),
        (passes_a_decision_on, "await dyorc.choose"),
    ],
)
def test_a_workflow_that_forgets_to_await_fails(workflow: dyorc.Workflow, advice: str) -> None:
    with pytest.raises(DyOrcError, match=advice):
        dyorc.run(workflow, [1, 2, 3])


@pytest.mark.parametrize("ask", [dyorc.when, dyorc.choose])
def test_a_decision_that_is_never_awaited_is_reported_with_its_place(ask: Callable[[object], Any]) -> None:
    @dyorc.workflow
    async def forgets(x: Vector) -> Vector:
        ask(total(x))
        return x

    @dyorc.workflow
    async def calls_it(x: Vector) -> Vector:
        return forgets(x)

    @dyorc.workflow
    async def streams(x: Vector) -> AsyncIterator[Vector]:
        yield x
        match ask(total(x)):
            case True:
                yield x

    for workflow, name in ((forgets, "forgets"), (calls_it, "forgets"), (streams, "streams")):
        place = rf"dyorc\.{ask.__name__} \(test_awaiting\.py, line \d+\)"
        with pytest.raises(WorkflowError, match=rf"'{name}' never awaits {place}.* write `await dyorc\.{ask.__name__}"):
            list(dyorc.run(workflow, [1, 2, 3]))


def test_a_decision_may_be_awaited_late_or_twice() -> None:
    @dyorc.workflow
    async def asks(x: Vector) -> Vector:
        is_large = dyorc.when(total(x), lambda value: value > 10)
        await total(x)
        return x[:1] if await is_large or await is_large else x

    assert dyorc.run(asks, [1, 2, 3]).tolist() == [1, 2, 3]


def test_a_workflow_that_returns_nothing_gets_an_error() -> None:
    @dyorc.workflow
    async def one(x: Vector) -> Vector:
        total(x)

    @dyorc.workflow
    async def two(x: Vector) -> tuple[Vector, Vector]:
        total(x)

    @dyorc.program
    def forgets(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, " batch"]:
        x.sum(axis=1)

    for target, error, expected in (
        (one, WorkflowError, r"a tensor \[n\]"),
        (two, WorkflowError, "a tuple of 2 tensors"),
        (forgets, ProgramError, r"a tensor \[\]"),
    ):
        with pytest.raises(error, match=rf"{target.name}' returned None, expected {expected}; is a `return` missing\?"):
            dyorc.run(target, [1, 2, 3])
