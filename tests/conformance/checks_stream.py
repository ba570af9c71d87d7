"""3.4, item 6: `ModelStreamInfer` by both of tritonclient's gRPC clients: ids, errors, models that answer in parts."""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import tritonclient.grpc as sync_grpc
import tritonclient.grpc.aio as aio_grpc
from rows import Table, expect
from tritonclient.utils import InferenceServerException

_SECTION = "3.4 streams"
_X = np.arange(4, dtype=np.float32)
_WAIT_S = 20.0
Answer = tuple[Any, InferenceServerException | None]
"""tritonclient's result, or the error in its place."""


def request(
    model: str = "behave", request_id: str = "", x: np.ndarray = _X, *, wants_end: bool = False, **parameters: Any
) -> dict[str, Any]:
    """Returns one request of a stream, as tritonclient's methods take it."""
    found = sync_grpc.InferInput("x", list(x.shape), "FP32")
    found.set_data_from_numpy(x)
    one: dict[str, Any] = {"model_name": model, "inputs": [found], "request_id": request_id, "parameters": parameters or None}
    return one | ({"enable_empty_final_response": True} if wants_end else {})


async def by_callbacks(address: str, requests: Sequence[dict[str, Any]], num_answers: int) -> list[Answer]:
    """Sends requests on one stream of the synchronous client and takes the first answers."""
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def collect() -> list[Answer]:
        with sync_grpc.InferenceServerClient(address) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            for one in requests:
                client.async_stream_infer(**one)
            try:
                return [answers.get(timeout=_WAIT_S) for _ in range(num_answers)]
            except queue.Empty:
                raise AssertionError(f"no {num_answers} answers in {_WAIT_S} s") from None
            finally:
                client.stop_stream(cancel_requests=True)

    return await asyncio.to_thread(collect)


async def by_coroutines(address: str, requests: Sequence[dict[str, Any]], num_answers: int) -> list[Answer]:
    """Does the same with the asyncio client."""
    is_enough = asyncio.Event()

    async def ask() -> AsyncIterator[dict[str, Any]]:
        for one in requests:
            yield one
        await is_enough.wait()

    async with aio_grpc.InferenceServerClient(address) as client:
        found: list[Answer] = []
        stream = client.stream_infer(ask())
        async for answer in stream:
            found.append(answer)
            if len(found) == num_answers:
                break
        is_enough.set()
        stream.cancel()
        return found


COLLECTORS = {"grpc": by_callbacks, "grpc.aio": by_coroutines}


def _id(answer: Answer) -> str:
    return answer[0].get_response().id


def _is_final(answer: Answer) -> bool | None:
    parameters = answer[0].get_response().parameters
    return parameters["triton_final_response"].bool_param if "triton_final_response" in parameters else None


async def many_in_flight(collect: Any) -> None:
    """Answers are told apart by id."""
    arrays = {str(at): np.full(8, at, np.float32) for at in range(20)}
    answers = await collect([request("behave", request_id, x) for request_id, x in arrays.items()], len(arrays))
    assert not [error for _, error in answers if error], answers
    expect({_id(answer) for answer in answers}, set(arrays), "the ids")
    for answer in answers:
        np.testing.assert_array_equal(answer[0].as_numpy("output"), arrays[_id(answer)])


async def an_error_and_an_answer(collect: Any) -> None:
    """They may come in either order."""
    for bad in (request(fails=True), request("nothing"), request(nothing=1)):
        answers = await collect([bad, request(request_id="good")], 2)
        errors = [error for _, error in answers if error is not None]
        results = [answer for answer in answers if answer[1] is None]
        expect((len(errors), len(results)), (1, 1), "errors and answers")
        expect(_id(results[0]), "good", "the id of the answer")


async def parts(collect: Any) -> None:
    """A model that answers in parts sends all of them, in order, with the request's id."""
    answers = await collect([request("count", "c", num_parts=5)], 5)
    assert not [error for _, error in answers if error], answers
    expect({_id(answer) for answer in answers}, {"c"}, "the ids")
    for at, answer in enumerate(answers):
        np.testing.assert_array_equal(answer[0].as_numpy("output"), _X + 1 + at)


async def end_of_parts(collect: Any) -> None:
    """An empty answer marks the end, for clients that asked for that."""
    answers = await collect([request("count", "c", wants_end=True, num_parts=3)], 4)
    assert not [error for _, error in answers if error], answers
    expect([bool(_is_final(answer)) for answer in answers], [False, False, False, True], "triton_final_response")
    expect(len(answers[-1][0].get_response().outputs), 0, "outputs of the last")
    expect(_id(answers[-1]), "c", "the id of the last")


async def no_end_unless_asked(collect: Any) -> None:
    """The answer to the following request comes next, with nothing in between."""
    answers = await collect([request("count", "c", num_parts=0), request(request_id="next")], 1)
    assert answers[0][1] is None, answers
    expect(_id(answers[0]), "next", "the id")


async def one_answer_is_final(collect: Any) -> None:
    """The only answer of a model that does not stream is marked as the last, if the request asks for that."""
    (answer,) = await collect([request(request_id="one", wants_end=True)], 1)
    assert answer[1] is None, answer[1]
    expect((_id(answer), _is_final(answer)), ("one", True), "id and triton_final_response")


async def part_fails(collect: Any) -> None:
    """The parts before the failed one come, then the error."""
    answers = await collect([request("count", "c", num_parts=5, fails_at=2)], 3)
    expect([error is None for _, error in answers], [True, True, False], "answers without an error")
    assert "asked to fail" in answers[2][1].message(), answers[2][1]


async def others_go_on_beside_parts(collect: Any) -> None:
    """Two streaming requests and plain ones share the stream."""
    requests = [
        request("count", "a", num_parts=4),
        request("count", "b", num_parts=4),
        *(request(request_id="p") for _ in range(4)),
    ]
    answers = await collect(requests, 12)
    assert not [error for _, error in answers if error], answers
    expect({name: sum(_id(answer) == name for answer in answers) for name in "abp"}, dict.fromkeys("abp", 4), "answers")


CHECKS = {
    "many requests in flight, told apart by id": many_in_flight,
    "an error leaves the stream open": an_error_and_an_answer,
    "a streaming model's parts, in order": parts,
    "an empty last answer, if asked for": end_of_parts,
    "no empty last answer otherwise": no_end_unless_asked,
    "the answer of a model that does not stream is the last": one_answer_is_final,
    "a part that fails": part_fails,
    "several streaming and other requests": others_go_on_beside_parts,
}


def add(table: Table, grpc_address: str) -> None:
    """Adds all checks for both clients."""
    for kind, collect in COLLECTORS.items():
        for name, check in CHECKS.items():
            if check is end_of_parts and kind == "grpc.aio":
                continue  # the asyncio client has no argument for it
            table.add(_SECTION, kind, name, partial(check, partial(collect, grpc_address)))
