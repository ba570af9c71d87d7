"""The states of a call: the table in the engine is what calls obey, and what the documentation shows."""

from types import SimpleNamespace
from typing import Any

import pytest

from dyorc.engine.model.program_call import _TRANSITIONS, Call, CallState
from dyorc.errors import InternalError
from tests.unit.engine.call_states_picture import PAGE, PICTURE, page, svg

MOVES = {
    CallState.WAITING: Call.wait,
    CallState.GUESSED: Call.guess,
    CallState.QUEUED: Call.enqueue,
    CallState.RUNNING: Call.dispatch,
    CallState.SETTLED: Call.settle,
    CallState.WITHDRAWN: Call.withdraw,
}


def call_in(state: CallState) -> Call:
    segment: Any = SimpleNamespace(task=SimpleNamespace(request=SimpleNamespace(context=SimpleNamespace(order=None))))
    program: Any = SimpleNamespace(name="p")
    call = Call(program, (), (), segment)
    call.state = state
    return call


@pytest.mark.pure
@pytest.mark.parametrize("later", CallState)
@pytest.mark.parametrize("earlier", CallState)
def test_a_call_changes_its_state_only_as_the_table_says(earlier: CallState, later: CallState) -> None:
    call = call_in(earlier)
    if (earlier, later) in _TRANSITIONS:
        MOVES[later](call)
        assert call.state is later
    else:
        with pytest.raises(InternalError, match="cannot become"):
            MOVES[later](call)
        assert call.state is earlier


def test_the_picture_and_the_page_show_the_table() -> None:
    assert PICTURE.read_text() == svg()
    text = PAGE.read_text()
    assert page(text) == text
