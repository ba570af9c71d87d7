"""Mistakes made on purpose in what makes things durable, each by its name.

Those of `MISTAKES` are made in the processes whose steps are logged, those of `MISTAKES_OF_RECOVERY` where the disks after cuts
are opened, and those of `MISTAKES_OF_DISKS` are steps left out.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dyorc.gateway import keys
from dyorc.store import sqlite, sqlite_file, sqlite_jobs, sqlite_leases
from dyorc.store.sqlite_schema import RESULT
from dyorc.system import durable_files
from tests.power_cuts.file_log import Step, StepKind

MISTAKES: dict[str, Callable[[], None]] = {}
MISTAKES_OF_RECOVERY: dict[str, Callable[[], Callable[[], None]]] = {}
"""Each returns what takes it back."""
MISTAKES_OF_DISKS: dict[str, Callable[[Step], bool]] = {}
"""Each says which steps are left out."""


def _mistake(make: Callable[[], None]) -> Callable[[], None]:
    MISTAKES[make.__name__] = make
    return make


def _with_pragma(module: Any, old: str, new: str) -> None:
    """Has connections of a module do another thing than they are asked to."""
    real = module.connect

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            return super().execute(new if sql == old else sql, *values)

    def connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
        real(path, busy_timeout_s).close()  # makes the file
        return sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False, factory=Connection)

    module.connect = connect


@_mistake
def commits_of_processes_only() -> None:
    """Commits survive a killed process, not a power cut."""
    _with_pragma(sqlite, "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL")


@_mistake
def no_synchronization() -> None:
    """Nothing waits for the disk."""
    _with_pragma(sqlite, "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF")


@_mistake
def journal_in_memory() -> None:
    """What undoes half a transaction is not on the disk."""
    _with_pragma(sqlite, "PRAGMA journal_mode = WAL", "PRAGMA journal_mode = MEMORY")


@_mistake
def leases_that_break() -> None:
    """Leases are not even written in order."""
    _with_pragma(sqlite_leases, "PRAGMA synchronous = NORMAL", "PRAGMA synchronous = OFF")


@_mistake
def acknowledged_before_commit() -> None:
    """Steps are answered when they have run; their commit is the next thing that the thread does."""

    def run_all(self: Any, steps: list[Any]) -> list[Any]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [self._run(connection, step) for step in steps]
        self._batches._thread.submit(connection.execute, "COMMIT")
        return outcomes

    store: Any = sqlite.SqliteStore
    store._run_all = run_all


@_mistake
def a_commit_for_each_half() -> None:
    """The end of a job is committed before its result is there."""
    real = sqlite_jobs._put_body

    def put_body(connection: Any, job_id: str, kind: int, body: Any) -> None:
        if kind == RESULT:
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("SAVEPOINT step")
        real(connection, job_id, kind, body)

    module: Any = sqlite_jobs
    module._put_body = put_body


@_mistake
def folders_of_nobody() -> None:
    """The folders above the store's are made, and not synchronized."""
    module: Any = sqlite_file
    module.make_folder = lambda path, mode: path.mkdir(mode=mode, parents=True, exist_ok=True)


@_mistake
def files_renamed_unwritten() -> None:
    """A file takes another one's place before its bytes are on the disk."""
    from dyorc.planner import whole_file  # not torch, which most of these processes do without

    def replace_file(path: Path, data: bytes, mode: int) -> None:
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(data)
        os.replace(new, path)
        durable_files.sync_folder(path.parent)

    modules: Any = (keys, whole_file)
    for module in modules:
        module.replace_file = replace_file


@_mistake
def names_not_synchronized() -> None:
    """A file takes another one's place, and the folder is not synchronized."""
    module: Any = durable_files
    module.sync_folder = lambda path: None


def _leave_log_unread() -> Callable[[], None]:
    real = sqlite.connect

    def connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
        path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
        return real(path, busy_timeout_s)

    def take_back() -> None:
        module.connect = real

    module: Any = sqlite
    module.connect = connect
    return take_back


MISTAKES_OF_RECOVERY["a_log_that_is_deleted_at_start"] = _leave_log_unread
MISTAKES_OF_DISKS["a_log_whose_name_is_lost"] = lambda step: step.kind is StepKind.SYNC and step.path.endswith("state/dyorc")
MISTAKES_OF_DISKS["pages_over_the_log"] = lambda step: step.kind is StepKind.SYNC and step.path.endswith(".sqlite")
