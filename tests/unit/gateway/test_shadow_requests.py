"""Copies of requests: which are run, what they may keep, and that no request sees them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.config import GatewayConfig, ShadowConfig
from dyorc.core.arrays import Array
from dyorc.core.request import SHADOW_TENANT, Receiver
from dyorc.errors import CapacityError, ExecutionError
from dyorc.gateway.infer_request import InferRequest, make_request
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import ANONYMOUS
from dyorc.models.offers import ModelKey, VersionTraffic
from dyorc.models.registry import ModelRegistry, ServedModel
from dyorc.models.submission import Submission
from dyorc.telemetry.version_counts import DIFFERENT, DROPPED, FAILED, SAME, VersionCounts
from tests.fake_backend import FakeBackend
from tests.workflows import arithmetic

X = np.array([1, 2, 3, 4], np.float32)
Answer = Callable[[Workflow, Sequence[Array]], list[list[Array]]]


NEW = replace(arithmetic.quadruple, name="quadruple@2")
PARTS = [
    ServedModel(ModelKey("quadruple", "1"), arithmetic.quadruple),
    ServedModel(ModelKey("quadruple", "2"), NEW, traffic=VersionTraffic(0.0, 1.0)),
]


def service_of(answer: Answer, shadow: float = 1.0, **limits: Any) -> tuple[InferenceService, FakeBackend]:
    """Returns a service whose default version is answered with four times the input, and the version with a shadow share by
    `answer`."""
    parts = [PARTS[0], replace(PARTS[1], traffic=VersionTraffic(0.0, shadow))]
    backend = FakeBackend(
        ModelRegistry.of_parts(parts), lambda flow, inputs: answer(flow, inputs) if flow is NEW else [[4 * inputs[0]]]
    )
    return InferenceService(backend, GatewayConfig(shadow=ShadowConfig(**limits))), backend


async def ask(service: InferenceService, array: Array = X) -> Array:
    """Asks once."""
    model = service.model(ANONYMOUS, "quadruple")
    request: InferRequest = make_request(model, "", {"x": array}, {}, ())
    with service.admission.admit(ANONYMOUS, 0) as ticket, service.memory() as memory:
        return await service.infer(ticket, model, request, memory, take=lambda arrays: arrays[0].copy())


async def counts_after(service: InferenceService, num: int = 1, array: Array = X) -> VersionCounts:
    """Returns the new version's counts after so many requests; each answer is checked."""
    for _ in range(num):
        np.testing.assert_array_equal(await ask(service, array), 4 * array)
        await service.shadows.wait()
    await service.shadows.wait()
    assert service.shadows.num_bytes == 0, "nothing is kept"
    return (await service.versions.counts()).get("quadruple", {}).get("2", VersionCounts())


def times(factor: float) -> Answer:
    """Returns a version that multiplies."""

    def multiply(flow: Workflow, inputs: Sequence[Array]) -> list[list[Array]]:
        return [[(factor * inputs[0]).astype(np.float32)]]

    return multiply


def raising(error: Exception) -> Answer:
    """Returns a version that fails."""

    def fail(flow: Workflow, inputs: Sequence[Array]) -> list[list[Array]]:
        raise error

    return fail


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (times(4), SAME),
        (times(5), DIFFERENT),
        (raising(ExecutionError("broken")), FAILED),
        (raising(ValueError("broken")), FAILED),
        (raising(CapacityError("full")), DROPPED),
    ],
)
def test_a_copy_never_changes_the_answer_and_is_counted(answer: Answer, outcome: str) -> None:
    async def scenario() -> None:
        service, backend = service_of(answer)
        counts = await counts_after(service, 3)
        assert counts.copies == {outcome: 3}
        assert counts.num_requests == 0, "copies are no requests"
        real, copy = backend.seen[:2]
        assert not real.is_shadow
        assert (copy.is_shadow, copy.tenant, copy.priority) == (True, SHADOW_TENANT, 0)
        assert copy.weight < real.weight / 100
        service.close()

    asyncio.run(scenario())


def test_a_part_of_the_requests_is_copied() -> None:
    async def scenario() -> None:
        service, _ = service_of(times(4), shadow=0.25)
        counts = await counts_after(service, 200)
        assert 20 < counts.copies[SAME] < 85, "a quarter, within five standard deviations"
        service.close()

    asyncio.run(scenario())


def test_large_requests_are_not_copied() -> None:
    async def scenario() -> None:
        service, backend = service_of(times(4), max_request_bytes=15)
        assert (await counts_after(service)).copies == {DROPPED: 1}
        service.close()
        service, backend = service_of(times(4), max_bytes=15)
        assert (await counts_after(service)).copies == {DROPPED: 1}
        assert len(backend.seen) == 1
        service.close()

    asyncio.run(scenario())


def test_copies_are_dropped_when_enough_run() -> None:
    async def scenario() -> None:
        service, backend = service_of(times(4), max_in_flight=2)
        answers = await asyncio.gather(*(ask(service) for _ in range(10)))
        assert len(answers) == 10
        counts = await counts_after(service, 0)
        assert counts.copies[SAME] >= 2
        assert counts.copies[DROPPED] == 10 - counts.copies[SAME]
        assert sum(terms.is_shadow for terms in backend.seen) == counts.copies[SAME]
        service.close()

    asyncio.run(scenario())


def test_a_busy_server_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        service, backend = service_of(times(4))
        assert service.shedding is not None
        lag = vars(service.shedding)["_lag"]
        lag._num_let_in = 1000
        assert (await counts_after(service)).copies == {DROPPED: 1}
        assert len(backend.seen) == 1
        service.close()

    asyncio.run(scenario())


def test_requests_of_other_models_are_not_watched() -> None:
    async def scenario() -> None:
        service, _ = service_of(times(4), shadow=0.0)
        await ask(service)
        assert await service.versions.counts() == {}
        service.close()

    asyncio.run(scenario())


@dyorc.workflow
async def steps(x: Float[np.ndarray, "4"]) -> AsyncIterator[Float[np.ndarray, "4"]]:
    """Answers with one part; the tests answer in its place."""
    yield arithmetic.double(x)


NEW_STEPS = replace(steps, name="steps@2")
STEPS = [
    ServedModel(ModelKey("steps", "1"), steps),
    ServedModel(ModelKey("steps", "2"), NEW_STEPS, traffic=VersionTraffic(0.0, 1.0)),
]


def rows(*factors: float) -> list[list[Array]]:
    """Returns an answer with a part for each factor."""
    return [[(factor * X).astype(np.float32)] for factor in factors]


@pytest.mark.parametrize(
    ("parts", "outcome", "difference"),
    [
        (rows(1, 2, 3), SAME, ""),
        (rows(1, 2, 4), DIFFERENT, "part 2: output 'output' differs in 4 of 4 elements, by up to 4"),
        (rows(1, 2), DIFFERENT, "it has 2 parts, expected 3"),
        (rows(1, 2, 3, 4), DIFFERENT, "it has 4 parts, expected 3"),
        (rows(1, 2, 3, *range(1000)), DIFFERENT, "it has 13 parts, expected 3"),
    ],
)
def test_answers_in_parts_are_compared_part_by_part(parts: list[list[Array]], outcome: str, difference: str) -> None:
    """An answer that becomes much longer is cut off."""

    async def scenario() -> None:
        backend = FakeBackend(ModelRegistry.of_parts(STEPS), lambda flow, _: parts if flow is NEW_STEPS else rows(1, 2, 3))
        service = InferenceService(backend, GatewayConfig(shadow=ShadowConfig(max_request_bytes=6 * X.nbytes)))
        assert [part.tolist() for part in await stream(service)] == [row.tolist() for (row,) in rows(1, 2, 3)]
        await service.shadows.wait()
        counts = (await service.versions.counts())["steps"]["2"]
        assert (counts.copies, counts.difference) == ({outcome: 1}, difference)
        assert service.shadows.num_bytes == 0
        service.close()

    asyncio.run(scenario())


def test_no_copy_is_made_of_a_stream_that_is_too_large_or_was_left() -> None:
    async def scenario() -> None:
        backend = FakeBackend(ModelRegistry.of_parts(STEPS), lambda flow, _: rows(1, 2, 3))
        service = InferenceService(backend, GatewayConfig(shadow=ShadowConfig(max_request_bytes=2 * X.nbytes)))
        await stream(service)
        await stream(service, max_parts=1)
        assert len(backend.seen) == 2
        assert (await service.versions.counts())["steps"]["2"].copies == {DROPPED: 1}
        assert service.shadows.num_bytes == 0
        service.close()

    asyncio.run(scenario())


async def stream(service: InferenceService, max_parts: int = 100) -> list[Array]:
    """Reads an answer in parts, and leaves it after so many."""
    model, parts = service.model(ANONYMOUS, "steps"), list[Array]()
    request = make_request(model, "", {"x": X}, {}, ())
    with service.admission.admit(ANONYMOUS, 0) as ticket, service.memory() as memory:
        async with aclosing(service.stream(ticket, model, request, memory, take=lambda arrays: arrays[0].copy())) as ready:
            async for some in ready:
                parts += some
                if len(parts) >= max_parts:
                    break
    return parts


class Silent(FakeBackend):
    """Answers nothing, and lets each request be cancelled."""

    def submit(self, submission: Submission, receiver: Receiver[Any]) -> int:
        """Takes a request."""
        return 7

    def cancel(self, request_id: int) -> bool:
        """Gives it up."""
        return request_id == 7


class Unheard:
    """A receiver that is never called."""

    def take(self, arrays: list[Array], /) -> None:
        """Takes nothing."""

    def done(self, taken: None) -> None:
        """Learns nothing."""

    def failed(self, error: Exception) -> None:
        """Learns nothing."""


def test_nothing_is_kept_of_a_request_whose_client_has_gone() -> None:
    backend = Silent(ModelRegistry.of_parts(PARTS), lambda flow, inputs: [])
    service = InferenceService(backend, GatewayConfig())
    model = service.model(ANONYMOUS, "quadruple")
    request = make_request(model, "", {"x": X}, {}, ())
    ticket = service.admission.admit(ANONYMOUS, 0)
    number = service.submit(
        ticket, model, [X], request, Unheard(), timeout_s=None, priority=0, origin=None, body=None
    )  # fmt: skip
    assert service.shadows.num_bytes == X.nbytes
    assert service.cancel(number)
    assert service.shadows.num_bytes == 0
    service.close()
