"""A member of a storm whose start fails during a fault in which starts may fail is started again; other failures end it."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from dyorc.testing import ServerProcess
from tests.storm.contract import Findings
from tests.storm.members import Member

_STARTS = """
import pathlib, sys
tried = pathlib.Path(sys.argv[1])
if not tried.exists():
    tried.touch()
    print(sys.argv[2], flush=True)
    sys.exit(int(sys.argv[3]))
print("Ready", flush=True)
sys.stdin.read()
"""
_NO_ROOM = "dyorc: cannot create an arena of 33554432 bytes in /tmp/t-1: No space left on device"


def _member(tmp_path: Path, hindered_until_s: float, last_words: str = _NO_ROOM, status: int = 1) -> Member:
    def make(_: Mapping[str, str]) -> ServerProcess:
        return ServerProcess([sys.executable, "-c", _STARTS, str(tmp_path / "tried"), last_words, str(status)])

    return Member("server", make, lambda process: process.wait_for("Ready"), Findings(), lambda: hindered_until_s)


@pytest.mark.parametrize("last_words", [_NO_ROOM, "dyorc: the disk is full; no server starts without its store"])
def test_a_start_that_a_fault_hinders_is_repeated(tmp_path: Path, last_words: str) -> None:
    findings = _start_hindered(tmp_path, last_words)
    assert findings == Findings()


def _start_hindered(tmp_path: Path, last_words: str, status: int = 1) -> Findings:
    """Starts a member that fails once, before the fault is over, and returns what it has found."""
    member = _member(tmp_path, time.monotonic() + 60.0, last_words, status)
    member.start()
    assert member.process.lines == ["Ready"]
    member.process.__exit__(None, None, None)
    return member._findings  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("last_words", "status"), [("Traceback (most recent call last)", 1), ("", -11), ("", 3)])
def test_how_a_hindered_start_fails_is_looked_at(tmp_path: Path, last_words: str, status: int) -> None:
    assert len(_start_hindered(tmp_path, last_words, status).faults) == 1


def test_a_start_that_nothing_hinders_is_not_repeated(tmp_path: Path) -> None:
    member = _member(tmp_path, time.monotonic() - 1.0)
    with pytest.raises(RuntimeError, match="cannot create an arena"):
        member.start()
    member.process.__exit__(None, None, None)
