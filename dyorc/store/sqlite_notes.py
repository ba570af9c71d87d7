"""Notes in a SQLite store: functions of its connection. A fence that has claimed a name is a note, too, so that the tables are
those of older versions, which ignore it."""

import sqlite3


def write(connection: sqlite3.Connection, name: str, value: bytes, fence: int | None) -> bool:
    """See `NoteStore.note`."""
    if fence is not None and fence < _claimed(connection, name):
        return False
    _put(connection, name, value)
    return True


def read(connection: sqlite3.Connection, name: str) -> bytes | None:
    """See `NoteStore.noted`."""
    row = connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def claim(connection: sqlite3.Connection, name: str, fence: int) -> tuple[int, bytes | None]:
    """See `NoteStore.claim_note`."""
    highest = max(fence, _claimed(connection, name))
    _put(connection, _fence_of(name), b"%d" % highest)
    return highest, read(connection, name)


def _claimed(connection: sqlite3.Connection, name: str) -> int:
    return int(read(connection, _fence_of(name)) or b"0")


def _put(connection: sqlite3.Connection, name: str, value: bytes) -> None:
    connection.execute("REPLACE INTO notes VALUES (?, ?)", (name, value))


def _fence_of(name: str) -> str:
    return f"fence/{name}"
