"""What a history holds, and whose are written."""

import os
import re
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyorc
from dyorc.config import HistoriesConfig
from dyorc.core.request import Terms
from dyorc.errors import ConfigurationError
from dyorc.telemetry.histories.history import KeptTensor, TensorSource, index_of_json, json_of_index
from dyorc.telemetry.histories.history_files import HistoryFiles, read_histories
from dyorc.telemetry.histories.history_recorder import HistoryRecorder
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings
from tests.unit.replay.histories import Vector, double, halve, note, recorded, recording, refuse_negative, total, vector

pytestmark = pytest.mark.anyio

X = vector(1, 2, 3, 4)


@dyorc.workflow
async def choose_way(x: Vector) -> Vector:
    if await dyorc.when(total(x), lambda value: value > 5):
        return double(x)
    return halve(x)


async def test_a_history_has_calls_decisions_and_the_answer(tmp_path: Path) -> None:
    (history,) = await recorded(choose_way, tmp_path, [X])
    assert (history.request_id, history.workflow, history.version) == ("r1", "choose_way", "1")
    assert [(call.program, call.arguments) for call in history.calls] == [
        ("total", (TensorSource(-1, 0),)),
        ("double", (TensorSource(-1, 0),)),
    ]
    (decision,) = history.decisions
    assert (decision.kind, decision.outcome, decision.subject) == ("when", "True", (TensorSource(0, 0),))
    assert history.answer == (TensorSource(1, 0),)
    assert history.calls[1].outputs is not None
    assert history.calls[1].outputs[0].array() == pytest.approx(2 * X)
    assert history.inputs["x"].array() == pytest.approx(X)
    assert history.duration_ms >= history.calls[0].compute_ms > 0
    assert history.error == ()


async def test_wrong_guesses_are_in_no_history(tmp_path: Path) -> None:
    histories = await recorded(choose_way, tmp_path, *[[vector(number)] for number in range(12)])
    for history in histories:
        assert len(history.calls) == 2


async def test_views_constants_and_nested_workflows_are_traced_to_their_origin(tmp_path: Path) -> None:
    @dyorc.workflow
    async def inner(x: Vector) -> Vector:
        return double(x)

    @dyorc.workflow
    async def outer(x: Vector) -> Vector:
        twice = inner(x)
        halve(np.ones(2, np.float32))
        return double(twice[1:3])

    (history,) = await recorded(outer, tmp_path, [X])
    assert [call.program for call in history.calls][:1] == ["double"]
    last = history.calls[-1]
    assert last.arguments == (TensorSource(0, 0, ([[1, 3, None]],)),)
    assert history.answer == (TensorSource(len(history.calls) - 1, 0),)


async def test_what_a_program_raised_is_in_the_history(tmp_path: Path) -> None:
    @dyorc.workflow
    async def strict(x: Vector) -> Vector:
        return refuse_negative(x)

    (history,) = await recorded(strict, tmp_path, [-X])
    assert history.calls[0].error == ("ValueError", "a number is negative")
    assert history.error[0] == "program"


async def test_effects_that_end_after_the_answer_are_in_the_history(tmp_path: Path) -> None:
    @dyorc.workflow
    async def noting(x: Vector) -> Vector:
        note(x)
        return x

    (history,) = await recorded(noting, tmp_path, [X])
    (call,) = history.calls
    assert call.is_effect
    assert call.outputs is not None


async def test_large_values_are_left_out(tmp_path: Path) -> None:
    (history,) = await recorded(choose_way, tmp_path, [X], max_value_bytes=8)
    assert history.inputs["x"] == KeptTensor("FP32", (4,))
    assert history.calls[0].outputs == (KeptTensor("FP32", (), np.float32(10).tobytes()),)
    assert history.calls[1].outputs == (KeptTensor("FP32", (4,)),)


async def test_a_history_is_bounded(tmp_path: Path) -> None:
    @dyorc.workflow
    async def fan_out(x: Vector) -> Vector:
        results = [double(x) for _ in range(40)]
        await dyorc.gather(*results)
        return results[-1]

    (history,) = await recorded(fan_out, tmp_path, [X], max_value_bytes=16)
    kept = [call for call in history.calls if call.outputs is not None and call.outputs[0].data is not None]
    assert len(kept) == 15  # and the input


async def test_redacted_inputs_have_a_digest(tmp_path: Path) -> None:
    @dyorc.workflow
    async def secretive(x: Vector, factor: float = 2.0) -> Vector:
        ref: Any = x
        await ref
        return double(np.ones(3, np.float32))

    async with recording(secretive, tmp_path, redact=("x", "factor")) as cell:
        for x in (X, X, 2 * X):
            await cell.ask(x, statics=[2.0])
    histories = list(read_histories(tmp_path))
    first, second, third = [history.inputs["x"] for history in histories]
    assert first.data is None
    assert first == second
    assert first.digest != third.digest
    assert histories[0].redacted == ("x", "factor")
    assert histories[0].statics == {}
    assert histories[0].constants[0].data is None  # it may be made of the input
    assert histories[0].constants[0].digest


async def test_only_the_tenants_that_are_named_are_recorded(tmp_path: Path) -> None:
    for name, allowed, expected in (("none", (), [""]), ("one", ("a",), ["", "a"]), ("all", ("*",), ["", "a", "b"])):
        async with recording(choose_way, tmp_path / name, tenants=allowed) as cell:
            for tenant in ("", "a", "b"):
                await cell.ask(X, terms=Terms(tenant=tenant))
            await cell.ask(X, terms=Terms(is_shadow=True))
        assert [history.tenant for history in read_histories(tmp_path / name)] == expected


def test_a_fraction_of_the_requests_is_drawn(tmp_path: Path) -> None:
    draws = iter([0.1, 0.3, 0.2, 0.9])
    recorder = HistoryRecorder(HistoriesConfig(folder=str(tmp_path), ratio=0.25), lambda: next(draws))
    assert [recorder.draws() for _ in range(4)] == [True, False, True, False]


def test_the_oldest_file_goes_when_the_folder_is_full(tmp_path: Path) -> None:
    line = b"x" * 999 + b"\n"
    files = HistoryFiles(tmp_path / "folder", 2**20)
    for _ in range(2000):
        files.write(line)
    files.close()
    sizes = [file.stat().st_size for file in (tmp_path / "folder").iterdir()]
    assert 2**19 < sum(sizes) <= 2**20 + len(line)
    again = HistoryFiles(tmp_path / "folder", 2**20)
    again.write(line)
    again.close()
    assert sum(file.stat().st_size for file in (tmp_path / "folder").iterdir()) <= 2**20 + len(line)


def test_a_removed_file_is_replaced(tmp_path: Path) -> None:
    files = HistoryFiles(tmp_path, 2**20)
    files.write(b"a\n")
    for file in tmp_path.iterdir():
        file.unlink()
    files.write(b"b\n")
    files.close()
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"b\n"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_folder_that_is_renamed_is_made_again(tmp_path: Path, is_replaced: bool) -> None:
    folder, moved = tmp_path / "folder", tmp_path / "moved"
    files = HistoryFiles(folder, 2**20)
    files.write(b"a\n")
    folder.rename(moved)
    if is_replaced:
        folder.mkdir()
        (folder / next(moved.iterdir()).name).write_bytes(b"another file\n")
    files.write(b"b\n")
    files.write(b"c\n")
    files.close()
    assert [file.read_bytes() for file in moved.iterdir()] == [b"a\n"]
    assert b"b\nc\n" in [file.read_bytes() for file in folder.iterdir()]


def test_a_file_that_another_process_removes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / f"{1:014d}-00000000-0.jsonl"
    monkeypatch.setattr("dyorc.telemetry.histories.history_files._entries_in", lambda _folder: [gone])
    files = HistoryFiles(tmp_path, 2**20)
    files.write(b"a\n")
    files.close()
    assert [history.read_bytes() for history in tmp_path.iterdir()] == [b"a\n"]


_HISTORY = '{{"request_id": "{}", "workflow": "f", "version": "1", "at_s": 0, "duration_ms": 0, "format": 1}}\n'


def _put_strangers(folder: Path) -> Path:
    """Puts entries that are no files of histories into a folder, under names of histories that are older than all others.
    Returns the file that a link there leads to."""
    (folder.parent / "elsewhere").write_text(_HISTORY.format("elsewhere") * 2**14)
    os.mkfifo(folder / f"{0:014d}-00000000-0.jsonl")
    (folder / f"{0:014d}-00000000-1.jsonl").mkdir()
    (folder / f"{0:014d}-00000000-2.jsonl").symlink_to(folder.parent / "elsewhere")
    return folder.parent / "elsewhere"


def test_only_regular_files_of_a_folder_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    elsewhere = _put_strangers(folder)
    skipped: list[str] = []
    with pytest.raises(ConfigurationError, match=r"0-0\.jsonl: it is a named pipe, expected a regular file"):
        list(read_histories(folder))
    (folder / "1.jsonl").write_text(_HISTORY.format("a"))
    assert [history.request_id for history in read_histories(folder, on_damaged=skipped.append)] == ["a"]
    assert [text.rpartition(": ")[2] for text in skipped] == [
        f"it is a {kind}, expected a regular file" for kind in ("named pipe", "folder", "link")
    ]
    (tmp_path / "link").symlink_to(elsewhere)
    assert len(list(read_histories(tmp_path / "link"))) == 2**14  # a person has named it
    with pytest.raises(ConfigurationError, match="it is a named pipe"):
        list(read_histories(folder / f"{0:014d}-00000000-0.jsonl"))


def test_a_writer_counts_and_removes_only_files_of_writers(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    elsewhere = _put_strangers(folder)
    (folder / "0.jsonl").write_bytes(bytes(2**20))  # somebody's copy
    strangers = {file.name for file in folder.iterdir()}
    files = HistoryFiles(folder, 2**20)
    for _ in range(1500):
        files.write(b"x" * 999 + b"\n")
    files.close()
    assert strangers <= {file.name for file in folder.iterdir()}
    assert elsewhere.stat().st_size > 2**20
    sizes = [file.stat().st_size for file in folder.iterdir() if file.name not in strangers]
    assert 2**19 < sum(sizes) <= 2**20 + 1000


def test_a_relative_folder_stays_where_it_was_when_the_current_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = HistoryFiles(Path("folder"), 2**20)
    (tmp_path / "other").mkdir()
    os.chdir(tmp_path / "other")
    files.write(b"a\n")
    files.close()
    assert [file.read_bytes() for file in (tmp_path / "folder").iterdir()] == [b"a\n"]


def test_processes_that_begin_files_at_once_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dyorc.telemetry.histories.history_files.time.time_ns", lambda: 10**18)
    for line in (b"a\n", b"b\n"):
        files = HistoryFiles(tmp_path, 2**20)
        files.write(line)
        files.close()
    assert sorted(file.read_bytes() for file in tmp_path.iterdir()) == [b"a\n", b"b\n"]


async def test_what_cannot_be_written_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with recording(choose_way, tmp_path / "file") as cell:  # the folder's place is taken
        assert isinstance(await cell.ask(X), list)
    readings = Readings()
    cell.recorder.measure(readings)
    assert readings.of(catalogue.HISTORIES_DROPPED) == {(): 1}
    assert readings.of(catalogue.HISTORIES_WRITTEN) == {(): 0}


def test_a_reader_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no file or folder"):
        list(read_histories(tmp_path / "missing"))
    with pytest.raises(ConfigurationError, match="holds no histories"):
        list(read_histories(tmp_path))
    (tmp_path / "1.jsonl").write_text('{"half of a line')
    with pytest.raises(ConfigurationError, match="holds no histories"):
        list(read_histories(tmp_path))
    (tmp_path / "1.jsonl").write_text("{}\n")
    with pytest.raises(ConfigurationError, match=re.escape("1.jsonl, line 1: expected a history")):
        list(read_histories(tmp_path))
    (tmp_path / "1.jsonl").write_text(
        '{"request_id": "a", "workflow": "f", "version": "1", "at_s": 0, "duration_ms": 0, "format": 9}\n'
    )
    with pytest.raises(ConfigurationError, match="a history of format 9, expected 1"):
        list(read_histories(tmp_path))


def test_the_newest_histories_are_read(tmp_path: Path) -> None:
    (tmp_path / "2.jsonl").write_text(_HISTORY.format("c") + _HISTORY.format("d"))
    (tmp_path / "1.jsonl").write_text(_HISTORY.format("a") + _HISTORY.format("b"))
    assert [history.request_id for history in read_histories(tmp_path, 3)] == ["b", "c", "d"]


@pytest.mark.parametrize("index", [(1,), (slice(1, 3),), (..., None, slice(None, None, -1)), ()])
def test_indices_survive_json(index: tuple[object, ...]) -> None:
    assert index_of_json(json_of_index(index)) == index  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "array", [np.array([b"a", b""], object), np.array(3, np.int64), np.zeros((2, 0), np.float16), np.array([True, False])]
)
def test_tensors_survive(array: np.ndarray) -> None:
    back = KeptTensor.of(array, max_bytes=100).array()
    assert back is not None
    assert (back.dtype, back.shape, back.tolist()) == (array.dtype, array.shape, array.tolist())


def test_a_write_that_fails_leaves_no_empty_file_and_no_part_of_a_line(tmp_path: Path) -> None:
    files, line = HistoryFiles(tmp_path, 2**30), b"x" * 99 + b"\n"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
    try:
        for num_lines in (1, 0):
            files.write(line * num_lines)
            with pytest.raises(OSError, match="too large"):
                files.write(bytes(2**21))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    files.close()
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [line]
