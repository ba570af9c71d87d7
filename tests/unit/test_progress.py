"""What `dyorc serve` prints while programs load."""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping

import pytest
from rich.console import Console

from dyorc.models.status import StatusBoard
from dyorc.server.loading_progress import show_progress
from tests.workflows.arithmetic import double

COMPLAINT = {"double": "Deployment 'double' has 1 replicas that have taken more than 30s to be scheduled."}


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_complaint_of_serve_is_not_repeated_once_its_program_is_ready(is_terminal: bool) -> None:
    status = StatusBoard([double])

    async def changes() -> AsyncIterator[Mapping[str, str]]:
        yield COMPLAINT
        status.joined("double", "double-0", 1)
        yield COMPLAINT  # Serve has not been polled again yet

    output = io.StringIO()
    console = Console(file=output, force_terminal=is_terminal, width=200, soft_wrap=True)
    asyncio.run(show_progress(console, status, changes()))
    lines = output.getvalue().splitlines()
    assert any("starting" in line and "taken more than 30s" in line for line in lines) or is_terminal
    assert [line for line in lines if "ready" in line]
    assert not [line for line in lines if "ready" in line and "taken more" in line]


def test_a_load_error_is_shown_beside_the_state() -> None:
    status = StatusBoard([double])

    async def changes() -> AsyncIterator[Mapping[str, str]]:
        status.load_failed("double", "ValueError: no [weights]")
        yield {}

    output = io.StringIO()
    asyncio.run(show_progress(Console(file=output, width=200), status, changes()))
    assert output.getvalue() == "  double: failing ValueError: no [weights]\n"
