"""Files and folders that survive a power cut; that they do is tried in `tests/power_cuts`."""

import errno
import os
import stat
from pathlib import Path

import pytest

from dyorc.system import durable_files
from dyorc.system.durable_files import make_folder, replace_file


def test_a_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    replace_file(path, b"new", 0o640)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_be_synchronized_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="broken"):
        replace_file(path, b"new", 0o600)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_made_with_those_above_it_each_synchronized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synchronized: list[Path] = []
    monkeypatch.setattr(durable_files, "sync_folder", synchronized.append)
    make_folder(tmp_path / "a" / "b" / "c", 0o700)
    assert stat.S_IMODE((tmp_path / "a" / "b" / "c").stat().st_mode) == 0o700
    assert synchronized == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    make_folder(tmp_path / "a" / "b" / "c")  # nothing to make, but who made it may not have synchronized it yet
    assert synchronized[3:] == [tmp_path / "a" / "b"]


@pytest.mark.parametrize(("number", "is_raised"), [(errno.EINVAL, False), (errno.EACCES, False), (errno.EIO, True)])
def test_only_a_broken_disk_fails_a_folder(number: int, is_raised: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "fsync", fail)
    if is_raised:
        with pytest.raises(OSError, match="no"):
            durable_files.sync_folder(tmp_path)
    else:
        durable_files.sync_folder(tmp_path)
