"""Folders where no histories can be written: when a server starts, and later."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import dyorc
from dyorc.config import HistoriesConfig
from dyorc.errors import ConfigurationError
from dyorc.telemetry.histories.history_folder import check_folder
from dyorc.telemetry.histories.history_recorder import recording_histories
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings
from tests.deadlines import TIMEOUT_S
from tests.unit.replay.histories import Vector, double, recording, vector

_APP = """
import dyorc

@dyorc.program(batched=False)
def size(text: str) -> int:
    return len(text)
"""


def _refused(folder: Path) -> str:
    with pytest.raises(ConfigurationError) as refused, recording_histories(HistoriesConfig(folder=str(folder))):
        pass
    return str(refused.value)


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert _refused(file) == (
        f"telemetry.histories.folder is {file}, and no histories can be written there: it is no folder; name another folder"
    )
    assert "Not a directory" in _refused(file / "below")
    assert "/proc/histories" in _refused(Path("/proc/histories"))
    if os.geteuid():
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        assert "Permission denied" in _refused(locked)


def test_a_usable_folder_is_made_and_stays_empty(tmp_path: Path) -> None:
    check_folder(HistoriesConfig(folder=str(tmp_path / "new" / "one")))
    assert not list((tmp_path / "new" / "one").iterdir())
    check_folder(HistoriesConfig())


def test_a_full_disk_does_not_keep_a_server_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    check_folder(HistoriesConfig(folder=str(tmp_path)))


@pytest.mark.parametrize("options", [["--in-process"], ["--in-process", "--cells", "2"]], ids=["alone", "cells"])
def test_a_server_with_such_a_folder_does_not_start(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "app.py").write_text(_APP)
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "DYORC_TELEMETRY__HISTORIES__FOLDER": "file", "DYORC_GATEWAY__PORT": "0"}
    command = [sys.executable, "-P", "-m", "dyorc.cli.main", "serve", "app.py:size", *options]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ended.returncode not in (0, None)
    assert f"telemetry.histories.folder is {tmp_path / 'file'}" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


@pytest.mark.anyio
async def test_a_folder_that_fails_later_is_logged_once_and_its_histories_are_counted(tmp_path: Path) -> None:
    @dyorc.workflow
    async def flow(x: Vector) -> Vector:
        return double(x)

    folder = tmp_path / "folder"
    with capture_logs() as logs:
        async with recording(flow, folder) as cell:
            shutil.rmtree(folder, ignore_errors=True)
            folder.write_text("")
            for number in range(3):
                await cell.ask(vector(number, 1))
            recorder = cell.recorder
    readings = Readings()
    recorder.measure(readings)
    assert readings.of(catalogue.HISTORIES_DROPPED) == {(): 3}
    (entry,) = [entry for entry in logs if entry["event"] == "histories_not_written"]
    assert entry["log_level"] == "error"
    assert not entry["exc_info"]
    assert "exists" in entry["error"]
