"""`dyorc.when` and `dyorc.choose` about a list of values: one decision, an outcome for each of them."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.decisions import Outcomes
from dyorc.errors import ProgramError, WorkflowError
from tests.unit.engine.driver import World

Row = Float[np.ndarray, "2"]
Rows = Float[np.ndarray, "batch 2"]
Numbers = Float[np.ndarray, " n"]
Items = Float[np.ndarray, "n 2"]
FOUR = np.arange(8, dtype=np.float32).reshape(4, 2)


@dyorc.program(max_batch_size=8)
def double(x: Rows) -> Rows:
    return 2 * x


@dyorc.program(max_batch_size=8)
def negate(x: Rows) -> Rows:
    return -x


@dyorc.program(batched=False)
def refuse_four(x: Row) -> Row:
    if x[0] == 4:
        raise ValueError("four")
    return x


@dyorc.workflow
async def negate_large(x: Items) -> Items:
    """Doubles each row, and negates those of the results that are large."""
    rows = list(await x)
    doubled = dyorc.map(double, rows)
    is_large = await dyorc.when(doubled, lambda row: row[0] > 5)
    assert isinstance(is_large, list)
    negated = iter(dyorc.map(negate, [row for row, large in zip(doubled, is_large, strict=True) if large]))
    return np.array(await dyorc.gather(*[next(negated) if large else row for row, large in zip(doubled, is_large, strict=True)]))


def test_each_value_has_its_outcome() -> None:
    expected = 2 * FOUR
    expected[expected[:, 0] > 5] *= -1
    assert np.array_equal(dyorc.run(negate_large, FOUR), expected)


def test_it_is_taken_once_for_all_values_and_calls_behind_it_share_a_batch() -> None:
    world = World([double, negate])
    world.join(double)
    world.join(negate)
    request_id = world.submit(negate_large, FOUR)
    world.finish_all()
    assert (world.sizes(double), world.sizes(negate)) == ([4], [2])
    assert world.result(request_id).shape == (4, 2)


def test_it_waits_for_values_of_several_batches() -> None:
    world = World([double, negate])
    world.join(double)
    world.join(negate)
    items = np.arange(20, dtype=np.float32).reshape(10, 2)
    request_id = world.submit(negate_large, items)
    world.finish_all()
    assert world.sizes(double) == [8, 2]
    expected = 2 * items
    expected[expected[:, 0] > 5] *= -1
    assert np.array_equal(world.result(request_id), expected)


def test_choose_gives_a_key_for_each() -> None:
    @dyorc.workflow
    async def chosen(x: Items) -> Numbers:
        keys = await dyorc.choose(dyorc.map(double, await x), lambda row: float(row[1]))
        return np.array(keys, np.float32)

    assert dyorc.run(chosen, FOUR).tolist() == [2, 6, 10, 14]


def test_an_empty_list_has_no_outcomes() -> None:
    @dyorc.workflow
    async def nothing(x: Row) -> Row:
        assert await dyorc.when([]) == []
        assert await dyorc.choose(()) == []
        return x

    assert dyorc.run(nothing, FOUR[0]).tolist() == [0, 1]


def test_the_same_value_may_stand_in_it_twice_and_inputs_views_and_results_of_workflows_too() -> None:
    @dyorc.workflow
    async def nested(x: Row) -> Row:
        return double(double(x))

    @dyorc.workflow
    async def several(x: Row) -> Numbers:
        once = double(x)
        outcomes = await dyorc.when([once, once, x, once[1:], nested(x)], lambda row: row[-1] > 1)
        return np.array(outcomes, np.float32)

    assert dyorc.run(several, FOUR[0]).tolist() == [1, 1, 0, 1, 1]


def test_a_later_change_of_the_outcomes_changes_no_other_run() -> None:
    @dyorc.workflow
    async def changed(x: Items) -> Float[np.ndarray, ""]:
        outcomes = await dyorc.when(dyorc.map(double, await x), lambda row: row[0] > 5)
        outcomes.clear()
        again = double((await x)[0])
        return np.float32(await dyorc.when(again, lambda row: row[0] == 0))

    assert dyorc.run(changed, FOUR) == 1


def test_the_first_failure_of_the_list_is_raised_once_all_have_ended() -> None:
    @dyorc.workflow
    async def caught(x: Items) -> Row:
        refs = dyorc.map(refuse_four, await x)
        try:
            await dyorc.when(refs, lambda row: True)
        except ProgramError:
            return refs[3]
        return refs[0]

    assert dyorc.run(caught, FOUR).tolist() == [6, 7]


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (lambda row: 1 / (row[0] - row[0]), "raised ZeroDivisionError: float division by zero"),
        (lambda row: "yes", "returned str 'yes', expected a bool"),
    ],
)
def test_a_predicate_that_fails_for_one_value_fails_the_decision_and_the_error_says_where(
    predicate: Callable[[Any], Any], message: str
) -> None:
    @dyorc.workflow
    async def failing(x: Items) -> Row:
        refs = dyorc.map(double, await x)
        await dyorc.when(refs, lambda row: predicate([float(row[0])]) if row[0] > 7 else True)
        return refs[0]

    with pytest.raises(WorkflowError) as caught:
        dyorc.run(failing, FOUR)
    place = r"\(for the value at index 2\) \(test_decisions_about_lists.py, line \d+\)"
    assert re.fullmatch(rf"workflow 'failing': the predicate of a decision {message} {place}", str(caught.value))


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (lambda refs: [*refs, 1], r"dyorc.when looks at a list of Refs, got int at index 4"),
        (lambda refs: iter(refs), r"dyorc.when looks at a Ref or a list of Refs, got list_iterator"),
    ],
)
def test_something_else_in_the_list_is_refused(subject: Callable[[Any], Any], message: str) -> None:
    @dyorc.workflow
    async def wrong(x: Items) -> Row:
        refs = dyorc.map(double, await x)
        await dyorc.when(subject(refs))
        return refs[0]

    with pytest.raises(WorkflowError, match=message):
        dyorc.run(wrong, FOUR)


def test_likely_is_refused_since_a_list_is_never_guessed() -> None:
    @dyorc.workflow
    async def hinted(x: Items) -> Row:
        refs = dyorc.map(double, await x)
        await dyorc.when(refs, lambda row: True, likely=True)
        return refs[0]

    with pytest.raises(WorkflowError, match="never guessed, so `likely=` would do nothing"):
        dyorc.run(hinted, FOUR)


def test_values_that_lie_elsewhere_are_fetched_together() -> None:
    world = World([double, negate], is_storing=True)
    world.join(double)
    world.join(negate)
    request_id = world.submit(negate_large, FOUR)
    world.finish_all()
    expected = 2 * FOUR
    expected[expected[:, 0] > 5] *= -1
    assert np.array_equal(world.result(request_id), expected)


def test_decisions_about_one_value_around_it_are_guessed_as_ever() -> None:
    @dyorc.workflow
    async def mixed(x: Items) -> Row:
        rows = await x
        first = double(rows[0])
        outcomes = await dyorc.when(dyorc.map(double, rows), lambda row: row[0] > 5)
        if await dyorc.when(first, lambda row: row[0] < 5, likely=True):
            return negate(double(rows[sum(outcomes)]))
        return first

    assert dyorc.run(mixed, FOUR).tolist() == [-8, -10]


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [([], "none"), ([False, False], "none"), ([True], "all"), ([True, False], "some"), (["a", "a"], "a"), ([1, 2], "several")],
)
def test_its_outcome_has_few_texts(outcomes: list[Any], text: str) -> None:
    assert str(Outcomes(outcomes)) == text


@pytest.mark.parametrize("decide", [dyorc.when, dyorc.choose])
def test_a_part_that_is_not_there_is_no_mistake_of_the_function(decide: Callable[..., Any]) -> None:
    @dyorc.workflow
    async def beyond(x: Items) -> Row:
        refs = dyorc.map(double, await x)
        await decide([refs[0], refs[1], refs[2][7]], lambda value: True)
        return refs[0]

    @dyorc.workflow
    async def alone(x: Items) -> Row:
        refs = dyorc.map(double, await x)
        await decide(refs[2][7], lambda value: True)
        return refs[0]

    reason = r"index 7 is out of bounds for axis 0 with size 2 \(test_decisions_about_lists.py, line \d+\)"
    for workflow, at in ((beyond, " at index 2"), (alone, "")):
        with pytest.raises(WorkflowError) as caught:
            dyorc.run(workflow, FOUR)
        assert re.fullmatch(rf"workflow '{workflow.name}': a decision cannot look at its value{at}: {reason}", str(caught.value))


@pytest.mark.parametrize("refs", [[], ["one"]], ids=["of nothing", "of one"])
def test_a_decision_needs_a_function(refs: list[str]) -> None:
    @dyorc.workflow
    async def wrong(x: Items) -> Row:
        row = double((await x)[0])
        await dyorc.when([row for _ in refs], True)  # pyright: ignore[reportArgumentType]
        return row

    with pytest.raises(WorkflowError, match=r"dyorc\.when asks a function of the value, got bool True"):
        dyorc.run(wrong, FOUR)
