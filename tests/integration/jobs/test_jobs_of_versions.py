"""A job runs on the version that it got, or on its successor; whether it may be repeated is a question of its own version."""

from collections.abc import Generator
from contextlib import closing, contextmanager

import pytest

from dyorc.authoring.workflow import Workflow
from dyorc.config import GatewayConfig, JobsConfig
from dyorc.gateway.jobs.attempts import Attempts
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import ANONYMOUS
from dyorc.models.offers import ModelKey, Offer
from dyorc.models.registry import ModelRegistry
from dyorc.protocol.job_records import JobState
from dyorc.store.base import Body, Claim, Outcome, StoredJob
from tests import oip
from tests.fake_backend import FakeBackend
from tests.integration.jobs.served_jobs import X
from tests.workflows import arithmetic, effects

pytestmark = pytest.mark.anyio

_MODEL = "quadruple"


@contextmanager
def serving(**earlier: Workflow) -> Generator[InferenceService]:
    """Serves version 1 of a model, which may be repeated, and earlier versions by their names (``v0=...``)."""
    backend = FakeBackend(ModelRegistry.of([arithmetic.quadruple]), lambda workflow, inputs: [[X]])
    offers = [Offer.of(ModelKey(_MODEL, name.removeprefix("v")), workflow) for name, workflow in earlier.items()]
    backend.offers.change([*backend.offers.all, *offers])
    with closing(InferenceService(backend, GatewayConfig())) as service:
        yield service


def claim_of(version: str, num_attempts: int, **named: str) -> Claim:
    """Returns a claimed job that got a version when it was submitted; with ``model_version``, its client has named it."""
    job = StoredJob(
        id="7", tenant="", model_name=_MODEL, model_version=version, state=JobState.RUNNING, created_s=1, ttl_s=60,
        num_attempts=num_attempts,
    )  # fmt: skip
    return Claim(job, 1, Body(oip.json_body({"x": X}, model_name=_MODEL, **named).content))


async def attempt(service: InferenceService, claim: Claim) -> str:
    """Runs a job, and returns how it ended."""
    ending = await Attempts(service, JobsConfig()).run(claim, service.admission.admit(ANONYMOUS, 0), lambda: None)
    assert isinstance(ending, Outcome)
    return "succeeded" if ending.error is None else ending.error.code


async def test_an_effect_of_an_earlier_version_is_not_repeated_because_the_default_has_none() -> None:
    with serving(v0=effects.once) as service:
        assert await attempt(service, claim_of("0", num_attempts=2)) == "effect_lost"
        assert await attempt(service, claim_of("1", num_attempts=2)) == "succeeded"


async def test_a_job_whose_version_was_replaced_while_it_waited_runs_on_the_successor_unless_it_has_named_it() -> None:
    with serving() as service:
        assert await attempt(service, claim_of("0", num_attempts=1)) == "succeeded"
        assert await attempt(service, claim_of("0", num_attempts=1, model_version="0")) == "unknown_model"


async def test_a_job_that_may_have_run_on_a_version_that_is_gone_is_not_repeated() -> None:
    with serving() as service:
        assert await attempt(service, claim_of("0", num_attempts=2)) == "effect_lost"
