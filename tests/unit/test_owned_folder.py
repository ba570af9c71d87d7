"""A folder of temporary files goes with its owner, also if that is killed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dyorc.system.owned_folder import lock, orphans, owned_folder, remove_orphan

PREFIX = "dyorc-tested-"
OWNER = f"""
from dyorc.system.owned_folder import owned_folder
with owned_folder({PREFIX!r}) as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one_and_not_before_it_dies(temporary: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        with owned_folder(PREFIX):
            assert folder.is_dir()  # its owner lives
        assert orphans(PREFIX) == []
        owner.kill()
    assert orphans(PREFIX) == [str(folder)]
    with owned_folder(PREFIX) as mine:
        assert list(temporary.iterdir()) == [Path(mine)]
    assert list(temporary.iterdir()) == []


def test_a_folder_without_a_lock_is_left_alone(temporary: Path) -> None:
    strange = temporary / f"{PREFIX}strange"
    strange.mkdir()
    with owned_folder(PREFIX):
        assert strange.is_dir()
    assert strange.is_dir()


def test_a_folder_that_cannot_be_removed_yet_keeps_its_lock(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a later process removes it."""
    folder = temporary / f"{PREFIX}busy"
    (folder / "busy").mkdir(parents=True)
    os.close(lock(str(folder)))
    remove_all = shutil.rmtree

    def refuse(path: str, **options: bool) -> None:
        (Path(path) / "lock").unlink(missing_ok=True)  # as far as it gets
        raise OSError("a process makes files in it")

    with monkeypatch.context() as busy:
        busy.setattr("dyorc.system.owned_folder._MAX_ATTEMPTS", 2)
        busy.setattr("dyorc.system.owned_folder._RETRY_S", 0.0)
        busy.setattr("shutil.rmtree", refuse)
        remove_orphan(str(folder))
    assert shutil.rmtree is remove_all
    assert orphans(PREFIX) == [str(folder)]
    remove_orphan(str(folder))
    assert list(temporary.iterdir()) == []


def test_what_others_put_where_the_lock_should_be_holds_nobody_up(temporary: Path) -> None:
    places = [temporary / f"{PREFIX}{kind}" for kind in ("pipe", "link", "folder")]
    for place in places:
        place.mkdir()
    os.mkfifo(places[0] / "lock")
    reader = os.open(places[0] / "lock", os.O_RDONLY | os.O_NONBLOCK)
    (temporary / "file").touch()
    (places[1] / "lock").symlink_to(temporary / "file")
    (places[2] / "lock").mkdir()
    assert orphans(PREFIX) == []
    os.close(reader)  # now nobody reads the pipe
    with owned_folder(PREFIX) as mine:
        assert sorted(temporary.iterdir()) == sorted([*places, Path(mine), temporary / "file"])
