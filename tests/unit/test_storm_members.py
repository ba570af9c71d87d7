"""A member of a storm whose start fails because of a full disk is started again; any other failure is the storm's."""

import sys
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
    sys.exit(sys.argv[2])
print("Ready", flush=True)
sys.stdin.read()
"""


def _member(tmp_path: Path, last_words: str) -> Member:
    def make(_: Mapping[str, str]) -> ServerProcess:
        return ServerProcess([sys.executable, "-c", _STARTS, str(tmp_path / "tried"), last_words])

    return Member("server", make, lambda process: process.wait_for("Ready"), Findings())


def test_a_start_on_a_full_disk_is_repeated(tmp_path: Path) -> None:
    member = _member(tmp_path, "dyorc: the disk is full; no server starts without its store")
    member.start()
    assert member.process.lines == ["Ready"]
    member.process.__exit__(None, None, None)


def test_another_failure_is_not_repeated(tmp_path: Path) -> None:
    member = _member(tmp_path, "dyorc: no such file")
    with pytest.raises(RuntimeError, match="no such file"):
        member.start()
    member.process.__exit__(None, None, None)
