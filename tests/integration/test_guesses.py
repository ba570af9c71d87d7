"""Guessing ahead on real replicas, as a client sees it."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from tests import oip
from tests.integration.stack import Stack, running
from tests.workflows import guarded

GOOD, BAD = np.array([1, 2, 3, 4], np.float32), np.array([-1, 2, 3, 4], np.float32)


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module, which has seen how long its programs take."""
    async with running([guarded.guarded]) as found:
        for _ in range(3):
            np.testing.assert_array_equal((await infer(found, GOOD)).outputs["output"], 2 * GOOD)
        yield found


async def infer(stack: Stack, x: oip.Array, **parameters: Any) -> oip.Answer:
    body = oip.json_body({"x": x}, parameters=parameters)
    return oip.read(await stack.client.post("/v2/models/guarded/infer", content=body.content, headers=body.headers))


def at_ms(steps: list[dict[str, Any]], event: str, program: str | None = None) -> float:
    """Returns when something happened, which it must have done once."""
    (found,) = [step["at_ms"] for step in steps if step["event"] == event and step.get("program") == program]
    return found


async def test_work_starts_before_the_guard_answers_and_the_story_says_so(stack: Stack) -> None:
    answer = await infer(stack, GOOD, explain=True)
    np.testing.assert_array_equal(answer.outputs["output"], 2 * GOOD)
    steps = answer.head["parameters"]["explain"]
    assert at_ms(steps, "dispatched", "work") < at_ms(steps, "decided") < at_ms(steps, "answered")
    (bet,) = [step["guess"] for step in steps if "guess" in step]
    assert 0.5 < bet["probability"] < 1
    assert bet["saves_ms"] > 10
    (decision,) = [step for step in steps if step["event"] == "decided"]
    assert decision["outcome"] == "True"
    assert decision["decision"].startswith("guarded.py, line ")
    assert [guess["is_right"] for guess in decision["guesses"]] == [True]


async def test_a_wrong_guess_is_never_seen_and_is_counted(stack: Stack) -> None:
    before = (await stack.client.get("/status")).json()["speculation"]
    answer = await infer(stack, BAD, explain=True)
    np.testing.assert_array_equal(answer.outputs["output"], BAD)
    (decision,) = [step for step in answer.head["parameters"]["explain"] if step["event"] == "decided"]
    assert decision["guesses"][0]["is_right"] is False
    after = (await stack.client.get("/status")).json()["speculation"]
    assert after["num_squashes"] == before["num_squashes"] + 1
    assert after["wasted_s"] > before["wasted_s"]
    assert set(after["workflows"]) == {"guarded"}


async def test_there_is_no_story_unless_asked_for(stack: Stack) -> None:
    assert "parameters" not in (await infer(stack, GOOD)).head


async def test_the_status_shows_what_programs_cost(stack: Stack) -> None:
    status = (await stack.client.get("/status")).json()
    assert status["num_requests"] == 0
    work = status["programs"]["work"]
    assert (work["state"], work["num_replicas"], work["num_queued"]) == ("ready", 1, 0)
    assert 50 < work["batch_base_ms"] + work["batch_item_ms"] < 500


async def test_explain_is_a_boolean(stack: Stack) -> None:
    body = oip.json_body({"x": GOOD}, parameters={"explain": "yes"})
    response = await stack.client.post("/v2/models/guarded/infer", content=body.content, headers=body.headers)
    assert response.status_code == 400
    assert "parameter 'explain' is 'yes', expected true or false" in response.json()["error"]
