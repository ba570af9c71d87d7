"""Versions that never end, draw at random or fail, and files of histories that are damaged."""

import itertools
import os
from pathlib import Path

import pytest

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.replay.replay_report import replay_files
from dyorc.replay.replayer import Replayer
from tests.unit.replay.histories import Vector, double, halve, recorded, total, tried, vector, workflow_like

pytestmark = pytest.mark.anyio


@workflow_like("plain")
async def plain(x: Vector) -> Vector:
    if await dyorc.when(total(x), lambda value: value > 0):
        return double(x)
    return halve(x)


def deciding_by(outcomes: "itertools.cycle[bool]") -> Workflow:
    @workflow_like("plain")
    async def flow(x: Vector) -> Vector:
        if await dyorc.when(total(x), lambda _: next(outcomes)):
            return double(x)
        return halve(x)

    return flow


async def test_a_version_that_never_ends_is_interrupted_and_the_replay_stops(tmp_path: Path) -> None:
    @workflow_like("plain")
    async def endless(x: Vector) -> Vector:
        while True:
            pass

    histories = await recorded(plain, tmp_path, *[[vector(number, 1)] for number in range(5)])
    report = tried(endless, histories, step_limit_s=0.05)
    assert (report.num_replayed, report.num_other_errors) == (3, 3)
    assert report.stopped == "its workflow was interrupted on 3 requests"
    assert "was interrupted" in report.examples[0].first()


async def test_a_decision_that_draws_is_not_deterministic(tmp_path: Path) -> None:
    histories = await recorded(plain, tmp_path, [vector(1, 1)])
    report = tried(deciding_by(itertools.cycle([False, True])), histories)
    assert (report.num_nondeterministic, report.num_other_outcomes) == (1, 0)
    assert "is not deterministic" in report.examples[0].first()
    always = tried(deciding_by(itertools.cycle([False])), histories)
    assert (always.num_nondeterministic, always.num_other_outcomes) == (0, 1)


async def test_the_report_names_errors(tmp_path: Path) -> None:
    @workflow_like("plain")
    async def failing(x: Vector) -> Vector:
        raise KeyError("nothing here")

    report = tried(failing, await recorded(plain, tmp_path, [vector(1, 1)]))
    (error,) = report.errors
    assert "KeyError" in error
    assert "nothing here" in error
    assert error in report.examples[0].first(), "although it makes fewer calls, too"


async def test_damaged_lines_are_skipped_and_named(tmp_path: Path) -> None:
    await recorded(plain, tmp_path, [vector(1, 1)], [vector(2, 1)], [vector(3, 1)])
    (name,) = os.listdir(tmp_path)
    file = tmp_path / name
    first, second, third = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:40] + b"\n" + third + first[:40])
    (tmp_path / "foreign.jsonl").write_text("{}\n")
    report = replay_files(Replayer(plain), tmp_path)
    assert (report.num_replayed, report.num_same) == (2, 2)
    places = [damaged.removeprefix(f"{tmp_path}/").partition(":")[0] for damaged in report.damaged]
    assert places == [f"{file.name}, line 2", f"{file.name}, line 4", "foreign.jsonl, line 1"]
    assert report.damaged[1].endswith("the line has no end: it was cut, or is being written")
