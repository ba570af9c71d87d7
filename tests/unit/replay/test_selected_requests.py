"""Which recorded requests are replayed: the newest of one workflow, and of the versions that count."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from dyorc.errors import ConfigurationError
from dyorc.replay.replay_report import ReplayReport, replay_files
from dyorc.replay.replayer import Replayer
from dyorc.replay.request_selection import NOT_SERVED
from dyorc.telemetry.histories.history import RequestHistory
from dyorc.telemetry.histories.history_files import read_histories
from tests.unit.replay.histories import Vector, double, recorded, vector, workflow_like

pytestmark = pytest.mark.anyio


@workflow_like("plain")
async def plain(x: Vector) -> Vector:
    return double(x)


def write(file: Path, history: RequestHistory, requests: Sequence[tuple[str, str, str, float]]) -> None:
    """Writes a request again, each time as one of another workflow, version and code, and time."""
    names = ("workflow", "version", "code", "at_s")
    lines = [msgspec.structs.replace(history, **dict(zip(names, each, strict=True))) for each in requests]
    file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def replayed(folder: Path, max_requests: int | None = None, codes: Sequence[str] | None = None, *versions: str) -> ReplayReport:
    """Replays the requests of a folder."""
    return replay_files(Replayer(plain), folder, max_requests, versions=versions, codes=codes)


async def test_the_newest_of_the_workflow_are_replayed_however_many_others_came_since(tmp_path: Path) -> None:
    (history,) = await recorded(plain, tmp_path / "one", [vector(1, 1)])
    folder = tmp_path / "all"
    folder.mkdir()
    write(folder / "1.jsonl", history, [("plain", "1", "a", 1.0), ("plain", "1", "a", 4.0), ("plain", "2", "b", 5.0)])
    write(folder / "2.jsonl", history, [("plain", "1", "a", 3.0), *[("busy", "1", "c", 9.0)] * 50])
    report = replayed(folder, 2)
    assert (report.num_replayed, report.num_of_others, report.versions) == (2, 50, {"1": 1, "2": 1})
    times = [each.at_s for each in read_histories(folder, 3, wants=lambda head: head.workflow == "plain")]
    assert times == [3.0, 4.0, 5.0], "though they were written to several files, as by several cells"
    assert replayed(folder, 2, ["a"]).versions == {"1": 2}
    assert replayed(folder, 2, None, "2").versions == {"2": 1}


async def test_requests_of_other_versions_are_skipped_and_counted(tmp_path: Path) -> None:
    (history,) = await recorded(plain, tmp_path / "one", [vector(1, 1)])
    folder = tmp_path / "all"
    folder.mkdir()
    write(folder / "1.jsonl", history, [("plain", "1", "a", 1.0), ("plain", "1", "b", 2.0), ("plain", "2", "c", 3.0)])
    assert replayed(folder).versions == {"1 (code a)": 1, "1 (code b)": 1, "2": 1}
    served = replayed(folder, None, ["b"])
    assert (served.num_replayed, served.versions, served.num_not_replayed) == (1, {"1": 1}, {NOT_SERVED: 2})
    named = replayed(folder, None, None, "2", "3")
    assert (named.versions, named.num_not_replayed) == ({"2": 1}, {"they are of version 1": 2})
    none = replayed(folder, 10, ["d"])
    assert none.why_none == "no recorded request of 'plain' was replayed: 3 because their version is no longer served"
    assert none.num_replayed == 0


async def test_a_different_request_is_named_with_its_version(tmp_path: Path) -> None:
    (history,) = await recorded(plain, tmp_path / "one", [vector(1, 1)])

    @workflow_like("plain")
    async def other(x: Vector) -> Vector:
        return x

    write(tmp_path / "1.jsonl", history, [("plain", "7", "a", 1.0)])
    report = replay_files(Replayer(other), tmp_path / "1.jsonl")
    assert report.examples[0].sentence() == "request r1 of version 7: calls: 1 fewer of 'double'"


async def test_a_line_without_a_workflow_is_damaged_and_not_another_one(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"version": "1"}\n')
    with pytest.raises(ConfigurationError, match=r"holds no histories that can be read; .*line 1: expected a history"):
        replayed(tmp_path)
