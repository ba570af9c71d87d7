"""For unit tests that are coroutines (`pytest.mark.anyio`)."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Names the only event loop that DyOrc uses."""
    return "asyncio"
