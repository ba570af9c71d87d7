"""`dyorc dev` notices which files change."""

import asyncio
import os
from pathlib import Path

from dyorc.authoring.user_files import folders_of, is_below
from dyorc.supervisor.file_watcher import FileWatcher
from tests.deadlines import TIMEOUT_S


async def _next(changes: FileWatcher) -> list[str]:
    async with asyncio.timeout(TIMEOUT_S):
        return await changes.wait_for_change()


def test_a_watched_file_that_changes_or_goes_is_named(tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("1")
    second.write_text("1")
    os.utime(first, (1, 1))
    os.utime(second, (1, 1))
    changes = FileWatcher([tmp_path])
    changes.begin()
    changes.watch([str(first), str(second)])
    first.write_text("2")
    assert asyncio.run(_next(changes)) == [str(first)]
    changes.begin()
    second.unlink()
    assert asyncio.run(_next(changes)) == [str(second)]


def test_what_changes_while_the_code_is_read_is_not_missed(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    changes = FileWatcher([tmp_path])
    changes.begin()
    file.write_text("1")  # after it was imported, but before anybody said that it matters
    os.utime(file, (2**33, 2**33))
    changes.watch([str(file)])
    assert asyncio.run(_next(changes)) == [str(file)]


def test_while_nothing_works_any_file_may_help(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / ".venv").mkdir()
    changes = FileWatcher([tmp_path])
    changes.begin()
    changes.watch_everything()
    (tmp_path / ".venv" / "library.py").write_text("1")
    (tmp_path / "inner" / "new.py").write_text("1")
    assert asyncio.run(_next(changes)) == [str(tmp_path / "inner" / "new.py")]


def test_libraries_are_not_the_users_files(tmp_path: Path) -> None:
    environment = tmp_path / "env"
    environment.mkdir()
    (environment / "pyvenv.cfg").touch()
    ours = tmp_path / "package" / "module.py"
    others = [
        environment / "lib" / "x.py",
        tmp_path / "site-packages" / "x.py",
        tmp_path / ".tox" / "x.py",
        Path("/elsewhere/x.py"),
    ]
    assert is_below(str(ours), [tmp_path])
    assert [is_below(str(path), [tmp_path]) for path in others] == [False] * 4


def test_folders_of_targets(tmp_path: Path) -> None:
    assert folders_of([f"{tmp_path}/app.py:flow", "package.module:flow"]) == [Path.cwd(), tmp_path]
