"""Looking at a resident in a workflow is an error that says what to do instead: awaiting it would be wrong, too."""

from collections.abc import Callable
from typing import Any

import pytest

import dyorc
from dyorc.errors import WorkflowError
from tests.unit.engine.resident_world import Number, begin, extend, world_with

_ADVICE = "pass it to a program of its group, and use what that returns"


@pytest.mark.parametrize(
    "look",
    [
        bool,
        len,
        float,
        str,
        list,
        lambda numbers: numbers == 3,
        lambda numbers: numbers + 1,
        lambda numbers: 3 in numbers,
        lambda numbers: numbers.shape,
        lambda numbers: dict(zip(numbers, numbers, strict=True)),
    ],
    ids=["bool", "len", "float", "str", "list", "eq", "add", "in", "attribute", "unpack"],
)
def test_the_error_names_the_resident_and_says_to_pass_it_on(look: Callable[[Any], Any]) -> None:
    @dyorc.workflow(programs=[begin])
    async def wrong(x: Number) -> Number:
        look(begin(x))
        return x

    world = world_with("P")
    request = world.submit(wrong, 1.0)
    world.finish_all()
    with pytest.raises(WorkflowError, match=f"the resident 'output' .*{_ADVICE}") as raised:
        world.result(request)
    assert "await" not in str(raised.value)
    world.check_nothing_is_left()


def test_an_awaited_resident_has_the_same_advice() -> None:
    @dyorc.workflow(programs=[begin])
    async def wrong(x: Number) -> Number:
        return await begin(x)

    world = world_with("P")
    request = world.submit(wrong, 1.0)
    world.finish_all()
    with pytest.raises(WorkflowError, match=_ADVICE):
        world.result(request)


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (bool, "a Ref of several outputs has no truth value yet; pick one of them first"),
        (lambda both: bool(both[0]), "a Ref has no truth value yet; `await` it"),
        (lambda both: bool(both[1]), f"the resident 'output_1' has no truth value yet; .*{_ADVICE}"),
    ],
)
def test_a_tensor_beside_a_resident_may_be_awaited(look: Callable[[Any], Any], text: str) -> None:
    @dyorc.workflow(programs=[begin, extend])
    async def wrong(x: Number) -> Number:
        look(extend(x, begin(x)))
        return x

    world = world_with("P")
    request = world.submit(wrong, 1.0)
    world.finish_all()
    with pytest.raises(WorkflowError, match=text):
        world.result(request)
