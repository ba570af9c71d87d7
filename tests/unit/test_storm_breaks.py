"""Whatever breaks a storm off, its last line is JSON with what was done so far and what broke it, and its card is not whole."""

import datetime
import json
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tests.storm import faults, scorecard
from tests.storm.clients import Clients, Ledger
from tests.storm.contract import Entrance, Fault, Shape
from tests.storm.driver import BrokenOffError, ShapeResult, Storm, UnknownFaultError, storm
from tests.storm.judgement import Settlement
from tests.storm.members import FillableFolder

_ROOT = Path(__file__).parents[2]


class _Fragile(Shape):
    """Nothing runs. Its one fault cannot be ended."""

    entrances = (Entrance("http://127.0.0.1:1"),)

    def start(self) -> None:
        raise OSError("no room")

    def stop(self) -> None:
        raise RuntimeError("does not end")

    def faults(self) -> Mapping[str, Mapping[str, Callable[[], Fault]]]:
        return {"memory": {"full memory": self._full_memory}}

    def _full_memory(self) -> Fault:
        return Fault(name="full memory", apply=lambda: None, end=self.stop, bound_s=1.0, hinders_starts=True)

    def pids(self) -> dict[str, list[int]]:
        return {}

    @property
    def num_log_lines(self) -> int:
        return 0

    @property
    def log_tail(self) -> str:
        return ""


class _Patient:
    """Clients that are always answered at once."""

    def longest_unanswered_s(self) -> float:
        return 0.0

    def wait_for_all(self, since_s: float, timeout_s: float) -> float:
        return since_s


def _storm_over(shape: Shape, *names: str) -> Storm:
    return Storm(shape, cast(Clients, _Patient()), Ledger(), random.Random(1), names)


def test_what_breaks_off_names_the_fault() -> None:
    current = _storm_over(_Fragile("fragile", random.Random(1)))
    with pytest.raises(BrokenOffError, match="at fault 1, full memory: RuntimeError: does not end"):
        current.strike()


def test_a_fault_that_is_not_known_breaks_nothing_off() -> None:
    current = _storm_over(_Fragile("fragile", random.Random(1)), "full moon")
    with pytest.raises(UnknownFaultError, match="full moon"):
        current.strike()


def test_starts_are_hindered_until_the_fault_is_over() -> None:
    shape = _Fragile("fragile", random.Random(1))
    assert shape.hindered_until_s == 0.0
    with pytest.raises(BrokenOffError):
        _storm_over(shape).strike()
    assert shape.hindered_until_s > 0.0


def test_where_there_is_no_room_no_server_need_start(tmp_path: Path) -> None:
    assert faults.full(FillableFolder(tmp_path), "memory", []).hinders_starts


def test_a_shape_that_does_not_start_is_a_result() -> None:
    result = storm(_Fragile("fragile", random.Random(1)), 1, lambda number: True, 1)
    assert result.broken_off == "OSError: no room; then RuntimeError: does not end"
    assert result.violations == [f"broken off {result.broken_off}"]


def test_a_card_of_a_storm_that_broke_off_is_not_whole(tmp_path: Path) -> None:
    day = datetime.date(2026, 11, 29)
    for reason in ("", "at fault 8, full memory: RuntimeError: the server ended", "OSError: no room"):
        result = ShapeResult("parts", [], Settlement(), [], [], 9, 9, 1.0, broken_off=reason)
        scorecard.add_to_day(scorecard.card_of([result], {}), tmp_path, day)
    card, page = json.loads((tmp_path / f"{day}.json").read_text()), (tmp_path / f"{day}.md").read_text()
    assert len(scorecard.violations_of(card)) == 2
    assert "**Not whole: parts broke off, below.**" in page
    assert "* parts: broken off at fault 8, full memory: RuntimeError: the server ended" in page


_COMMAND = """
import sys
from tests.storm import __main__ as command

is_early = sys.argv[-1] == "early"

def make_shape(name, chance):
    from tests.unit.test_storm_breaks import _Fragile
    if is_early:
        raise OSError("no room")
    return _Fragile(name, chance)

command.make_shape = make_shape
sys.argv = ["storm", "--shape", "cell", "--shape", "parts", "--card", sys.argv[1]]
command.main()
"""


def _run(*arguments: str) -> tuple[int, Any]:
    command = [sys.executable, "-c", textwrap.dedent(_COMMAND), *arguments]
    ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return ran.returncode, json.loads(ran.stdout.splitlines()[-1])


def test_the_last_line_is_json_whatever_breaks_a_storm_off(tmp_path: Path) -> None:
    reason = "OSError: no room; then RuntimeError: does not end"
    status, card = _run(str(tmp_path))
    assert (status, card["broken_off"]) == (1, {"cell": [reason], "parts": [reason]})
    assert len(card["violations"]) == 2
    assert len(list(tmp_path.iterdir())) == 2
    status, card = _run(str(tmp_path), "early")
    assert (status, card["broken_off"]) == (1, {"storm": ["OSError: no room"]})


def test_a_card_that_cannot_be_written_leaves_the_last_line(tmp_path: Path) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    for day in (today, today + datetime.timedelta(days=1)):  # it may be midnight
        (tmp_path / f"{day}.json").write_text("no JSON")
    status, card = _run(str(tmp_path))
    assert status == 1
    assert set(card["broken_off"]) == {"cell", "parts", "card"}
