"""Which of many calls a request failed by, and that a call which did not run is not said to have failed in its program."""

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.errors import ProgramError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, Vectors

Items = Float[np.ndarray, "n 2"]
Free = Float[np.ndarray, " n"]


@dyorc.program(max_batch_size=4)
def first_of(x: Vectors) -> Vectors:
    if (x < 0).any():
        raise ValueError("a number is negative")
    return x


@dyorc.program(max_batch_size=4)
def after(x: Vectors) -> Vectors:
    return x


@dyorc.workflow
async def piece(x: Vector) -> Vector:
    return first_of(after(x))


@dyorc.workflow
async def pieces(x: Items) -> Items:
    return np.array(await dyorc.gather(*dyorc.map(piece, await x)))


@dyorc.workflow
async def calls(x: Items) -> Items:
    after((await x)[0])
    return np.array(await dyorc.gather(*dyorc.map(first_of, await x)))


@dyorc.workflow
async def single(x: Items) -> Vector:
    return first_of((await x)[2])


@dyorc.workflow
async def misshapen(x: Free) -> Vector:
    return first_of(x)


FIVE = np.arange(10, dtype=np.float32).reshape(5, 2)
FIVE[2] = -1


@pytest.mark.parametrize(
    ("workflow", "notes"),
    [
        (pieces, ["it failed by call 3 of 5 (index 2) of piece"]),
        (calls, ["it failed by call 3 of 5 (index 2) of first_of"]),
        (single, []),
    ],
    ids=["workflows", "programs", "one call"],
)
def test_a_request_says_by_which_piece_of_a_fan_out_it_failed(workflow: dyorc.Workflow, notes: list[str]) -> None:
    world = World([first_of, after])
    world.join(first_of)
    world.join(after)
    (request_id,) = world.submit_all(workflow, [FIVE], explain=True)
    world.finish_all()
    with pytest.raises(ProgramError, match="program 'first_of' failed: ValueError: a number is negative"):
        world.result(request_id)
    assert [note.text() for note in world.stories[request_id].notes if note.event == "failed_by"] == notes


def test_a_call_whose_inputs_do_not_fit_names_the_workflow_that_made_it() -> None:
    world = World([first_of])
    world.join(first_of)
    request_id = world.submit(misshapen, np.zeros(3, np.float32))
    with pytest.raises(ProgramError) as caught:
        world.result(request_id)
    assert str(caught.value) == (
        "workflow 'misshapen' called program 'first_of' with inputs that do not fit, so it did not run: "
        "'x' has size 3 in dimension 0, expected 2 (shape [3], expected [2])"
    )
    assert (caught.value.program, caught.value.error_type) == ("first_of", "InvalidInputError")
    assert not world.history
