"""Versions that never end, draw at random or fail, and files of histories that are damaged."""

import itertools
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.replay.replay_report import replay_files
from dyorc.replay.replayer import ReplayedRequest, Replayer
from dyorc.replay.request_comparison import compare
from dyorc.telemetry.histories.history import RequestHistory
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


_NO_TYPE, _NO_SHAPE = {"dtype": "NaN", "shape": [6]}, {"dtype": "FP32", "shape": [-5]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"inputs": {"x": _NO_TYPE}}, "'NaN' is not a valid DType"),
        ({"calls": [{"program": "double", "arguments": [[-1, 0]], "outputs": [_NO_TYPE]}]}, "'NaN' is not a valid DType"),
        ({"constants": [_NO_TYPE], "answer": [[-2, 0]]}, "'NaN' is not a valid DType"),
        ({"inputs": {"x": _NO_SHAPE}}, r"a tensor has the shape \[-5\]"),
        ({"inputs": {"x": {"dtype": "FP32", "shape": [2]}}, "answer": [[-1, 0, [[2]]]]}, "out of bounds"),
        ({"inputs": {"x": {"dtype": "FP32", "shape": [2]}}, "answer": [[-1, 0, [[True]]]]}, "seen through True"),
        (
            {"inputs": {"x": {"dtype": "FP32", "shape": [2]}}, "answer": [[-1, 0, [[[None]]]]]},
            "a slice has other than three parts",
        ),
        ({"error": ["workflow"]}, "an error has 1 texts, expected 2"),
        ({"calls": [{"program": "double", "arguments": [], "error": ["a", "b", "c"]}]}, "an error has 3 texts"),
        ({"calls": [{"program": "double", "arguments": [], "compute_ms": 1e308}]}, "took 1e"),
        ({"calls": [{"program": "p", "arguments": [], "parts": []}], "answer": [[0, 0, [], 0]]}, "comes from part 0 of 0"),
        ({"calls": [{"program": "p", "arguments": [], "parts": [[_NO_TYPE]]}]}, "'NaN' is not a valid DType"),
        ({"calls": [{"program": "p", "arguments": [], "streams": [{"parts": [[[0, 0]]]}]}]}, "nodes are in a cycle"),
        ({"calls": [{"program": "p", "arguments": [], "streams": [{"error": ["a"]}]}]}, "an error has 1 texts, expected 2"),
        ({"parts": [[[-2, 0]]]}, "comes from place 0 of 0"),
        ({"inputs": {"x": {"dtype": "FP32", "shape": [2]}}, "answer": [[-1, 0, [], 0]]}, "part 0 comes from no call"),
        ({"nested": [{"workflow": "n", "arguments": [], "caller": 0}]}, "nested run 0 was called by run 0"),
        ({"calls": [{"program": "p", "arguments": [], "workflow": 0}]}, "belongs to nested run 0, and there are 0"),
        ({"calls": [{"program": "p", "arguments": [], "results": [-1]}]}, "belongs to nested run -1, and there are 0"),
    ],
)
async def test_what_no_server_writes_is_skipped_where_it_is_read(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    await recorded(plain, tmp_path, [vector(1, 1)])
    line = {"request_id": "r", "workflow": "plain", "version": "1", "at_s": 1.0, "duration_ms": 1.0, "format": 1, **changes}
    (tmp_path / "foreign.jsonl").write_text(json.dumps(line) + "\n")
    report = replay_files(Replayer(plain), tmp_path)
    assert (report.num_replayed, report.num_same, len(report.damaged)) == (1, 1, 1)
    assert report.damaged[0].startswith(f"{tmp_path}/foreign.jsonl, line 1: the history is damaged: ")
    assert re.search(reason, report.damaged[0])


def failing_in(file: str, error: str) -> Workflow:
    """Returns a version whose code is in a file of this name."""
    code = f"async def flow(x: Vector) -> Vector:\n    if await dyorc.when(total(x), lambda value: {error}):\n        return x\n"
    code += f"    {error}\n    return x\n"
    names = {"__name__": __name__, "dyorc": dyorc, "Vector": Vector, "total": total}
    exec(compile(code, file, "exec"), names)
    flow: Any = names["flow"]
    return workflow_like("plain")(flow)


@pytest.mark.parametrize("error", ["1 / 0", "value.no_such_name", "not value and x.no_such_name"])
async def test_the_name_of_a_file_and_its_lines_make_no_other_error(tmp_path: Path, error: str) -> None:
    histories = await recorded(failing_in("/one/err.py", error), tmp_path, [vector(1, 1)], [vector(-1, 1)])
    report = tried(failing_in("/other/err same.py", error), histories)
    assert (report.num_same, report.errors) == (2, {})


async def test_the_place_of_a_step_that_was_interrupted_makes_no_other_error(tmp_path: Path) -> None:
    texts = [f"was interrupted at {place} in flow, after 5 s" for place in ("/one/err.py:17", "/other/same.py:7")]
    one, other = (RequestHistory("r", "plain", "1", 1.0, 1.0, error=("workflow_limit", text), format=1) for text in texts)
    assert compare(one, ReplayedRequest(other), (), 0.0).is_same
    other.error = ("workflow_limit", "was interrupted at another place in flow, after 5 s")
    assert not compare(one, ReplayedRequest(other), (), 0.0).is_same
