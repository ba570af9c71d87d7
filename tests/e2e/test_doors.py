"""Clients of other languages and programs, against `dyorc serve` without Ray; see `tests/conformance/doors`."""

import pytest

from tests.conformance.doors.__main__ import DOORS, try_all
from tests.conformance.doors.doors import Door
from tests.conformance.doors.page import Tried, page
from tests.conformance.rows import Row
from tests.leaks import no_leaks


@pytest.mark.parametrize("door", DOORS.values(), ids=list(DOORS))
def test_every_check_passes(door: Door) -> None:
    if missing := door.find_missing():
        pytest.skip(f"this machine lacks {missing} (make conformance-doors, .ci/run)")
    with no_leaks():
        (table,) = try_all([door])
    assert table.rows
    assert [row for row in table.rows if not row.is_passed] == []


def test_what_a_machine_lacks_is_a_row_and_no_pass() -> None:
    rows = [Row("doors", "Node", "good", True), Row("doors", "Node", "bad | worse", False, "why")]
    text = page([Tried("Go", [], "go, protoc"), Tried("Node", rows)])
    assert "| Go | not tried: needs go, protoc | 0 |" in text
    assert "| Node | 2 | 1 |" in text
    assert "| bad &#124; worse | **failed** |" in text
