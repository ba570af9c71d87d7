"""What becomes of requests whose version has left before they reach it."""

import pytest

from dyorc.errors import NotReadyError
from dyorc.models.offers import ModelKey
from tests.integration.stack import running
from tests.workflows import arithmetic

pytestmark = pytest.mark.together


async def test_a_request_for_a_version_that_has_left_may_be_sent_again() -> None:
    async with running([arithmetic.quadruple]) as stack:
        with pytest.raises(NotReadyError, match="version 'earlier' of model 'quadruple' has left") as raised:
            stack.orchestrator.workflow(ModelKey("quadruple", "earlier"))
        assert raised.value.retryable
