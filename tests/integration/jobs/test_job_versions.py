"""What becomes of requests and jobs whose version has left before they run."""

import pytest

from dyorc.errors import NotReadyError
from dyorc.gateway.jobs.job_json import terms_of
from dyorc.gateway.tenants import ANONYMOUS
from dyorc.models.offers import ModelKey
from dyorc.protocol.job_records import JobState
from dyorc.store.base import Body, NewJob, new_id
from tests import oip
from tests.integration.jobs.served_jobs import X
from tests.integration.jobs.stored_jobs import MakeStore
from tests.integration.jobs.test_job_retries import jobs_beside
from tests.integration.stack import running
from tests.workflows import arithmetic

pytestmark = pytest.mark.together


@pytest.mark.parametrize(
    ("names_version", "state", "code"), [(False, JobState.SUCCEEDED, None), (True, JobState.FAILED, "unknown_model")]
)
async def test_a_job_whose_version_has_left_runs_on_the_default_unless_its_client_named_the_version(
    make_store: MakeStore, names_version: bool, state: JobState, code: str | None
) -> None:
    body = Body(oip.json_body({"x": X}, model_name="quadruple").content)
    terms = terms_of(ANONYMOUS, None, names_version=names_version)
    new = NewJob(
        id=new_id(), tenant=ANONYMOUS.name, model_name="quadruple", model_version="earlier", body=body, ttl_s=60.0, terms=terms
    )
    async with running([arithmetic.quadruple]) as stack:
        async with make_store() as store:
            await store.submit(new)
        async with jobs_beside(stack, make_store()) as jobs:
            job = await jobs.get(ANONYMOUS, new.id, wait_s=20)
            assert (job.state, job.error and job.error.code) == (state, code)


async def test_a_request_for_a_version_that_has_left_may_be_sent_again() -> None:
    async with running([arithmetic.quadruple]) as stack:
        with pytest.raises(NotReadyError, match="version 'earlier' of model 'quadruple' has left") as raised:
            stack.orchestrator.workflow(ModelKey("quadruple", "earlier"))
        assert raised.value.retryable
