"""The disk under the store: steps that fail or take long, and a moment between a commit and its caller's next step."""

import contextlib
import sqlite3
import types
from collections.abc import Callable
from typing import Any

from dyorc.store import sqlite_file
from tests.whole_server.world import World, current_thread

_COMMIT_S = 0.002
FULL, BROKEN, SLOW = "database or disk is full", "disk I/O error", "slow"


class Disk:
    """The disk of all processes.

    Attributes:
        trouble: `FULL`, `BROKEN`, `SLOW`; empty if it works.
        committed: Called after each commit.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.trouble = ""
        self.committed: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """Puts it under the store."""
        disk = self

        class Connection(sqlite3.Connection):
            """A connection on this disk."""

            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                """See `sqlite3.Connection.execute`."""
                if sql == "BEGIN IMMEDIATE":
                    disk.begin_step()
                elif sql == "COMMIT" and disk.trouble == FULL:
                    raise sqlite3.OperationalError(FULL)
                cursor = super().execute(sql, *values)
                if sql == "COMMIT":
                    disk.finish_step()
                return cursor

        def connect(*args: Any, **options: Any) -> sqlite3.Connection:
            return sqlite3.connect(*args, **options, factory=Connection)

        module: Any = sqlite_file
        module.sqlite3 = types.SimpleNamespace(connect=connect, Connection=sqlite3.Connection, Error=sqlite3.Error)

    def begin_step(self) -> None:
        """Waits before a transaction as long as the disk takes, or fails."""
        thread = current_thread()
        if thread is None:
            return
        if self.trouble == BROKEN:
            raise sqlite3.OperationalError(BROKEN)
        longest_s = 1.0 if self.trouble == SLOW else _COMMIT_S
        self.world.park(self.world.now_ns + int(self.world.chance.uniform(0, longest_s) * 1e9))

    def finish_step(self) -> None:
        """Lets others run, or this process die, after a commit and before anybody hears of it."""
        if current_thread() is not None:
            self.committed()
            self.world.park(self.world.now_ns + int(self.world.chance.uniform(0, _COMMIT_S) * 1e9))


def job_states(folder: str) -> dict[str, str]:
    """Returns the state of each job in a store's file; none if no server has ever opened it."""
    with contextlib.closing(sqlite3.connect(f"{folder}/store.db")) as connection:
        if not connection.execute("SELECT name FROM sqlite_master WHERE name = 'jobs'").fetchall():
            return {}
        return dict(connection.execute("SELECT id, state FROM jobs").fetchall())
