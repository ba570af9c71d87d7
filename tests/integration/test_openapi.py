"""The server does what its description says: requests made from the description never crash it, and its answers fit."""

# pyright: basic
# Schemathesis's objects are untyped at the places that are needed here.

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import requests
import schemathesis
import schemathesis.specs.openapi.schemas  # it would be imported in the thread, where Python 3.11 trips over compiling
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks as openapi_checks

from dyorc.config import RecordsConfig
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.recording import Recording
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic

_NUM_EXAMPLES = 8
"""How many examples of each operation are tried."""
_TIMEOUT_S = 120.0
_KNOWN = {"name": "sums", "version": "1"}
"""What a path has to name so that a request comes further than "unknown model"."""
_CHECKS = (
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
)
_EXPECTED_5XX = {501, 503, 504}
"""No crashes: not supported, not ready, out of time (as a Request-Timeout of 0 is)."""


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    recording, records = Recording(RecordsConfig()), RecordStore(RecordsConfig())
    recording.add(records)
    async with running([arithmetic.sums], recorder=recording, records=records) as found:
        yield found


async def test_every_answer_is_described(stack: Stack) -> None:
    description = (await stack.client.get("/openapi.json")).json()
    num_operations = await asyncio.to_thread(_try_all, description, str(stack.client.base_url))
    assert num_operations == sum(len(item) for item in description["paths"].values())
    assert (await stack.client.get("/v2/health/ready")).status_code == 200


def test_the_checks_find_what_is_not_described() -> None:
    """A test of the test: an answer whose status is missing in the description is found."""
    description = {
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"},
        "paths": {"/v2": {"get": {"responses": {"201": {"description": "made"}}}}},
    }  # fmt: skip
    (operation,) = (found.ok() for found in schemathesis.openapi.from_dict(description).get_all_operations())
    response = requests.Response()
    response.status_code, response.request = 200, requests.Request("GET", "http://x/v2").prepare()
    response._content = b"{}"
    with pytest.raises(FailureGroup, match="1 distinct failure") as caught:
        operation.Case().validate_response(response, checks=[openapi_checks.status_code_conformance])
    assert isinstance(caught.value.exceptions[0], openapi_checks.UndefinedStatusCode)


def _try_all(description: dict[str, Any], url: str) -> int:
    schema = schemathesis.openapi.from_dict(description)
    num_operations = 0
    with requests.Session() as session:
        session.trust_env = False
        for found in schema.get_all_operations():
            _try(found.ok(), url, session)
            num_operations += 1
    return num_operations


def _try(operation: Any, url: str, session: requests.Session) -> None:
    @seed(0)
    @settings(
        max_examples=_NUM_EXAMPLES, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def attempt(case: Any) -> None:
        for name, value in _KNOWN.items():
            if name in (case.path_parameters or {}):
                case.path_parameters[name] = value
        response = case.call(base_url=url, session=session, timeout=_TIMEOUT_S)
        assert response.status_code < 500 or response.status_code in _EXPECTED_5XX, (operation.label, response.text)
        case.validate_response(response, checks=_CHECKS)

    attempt()
