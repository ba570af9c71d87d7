"""For unit tests that are coroutines (`pytest.mark.anyio`)."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The only event loop that DyOrc knows."""
    return "asyncio"
