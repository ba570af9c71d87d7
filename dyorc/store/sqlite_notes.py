"""Notes in a store's SQLite file: the steps of `NoteStore`, each in a transaction of its caller."""

import sqlite3

from dyorc.store.base import NoteFence


def put(connection: sqlite3.Connection, name: str, value: bytes, fence: NoteFence | None) -> bool:
    """See `NoteStore.note`."""
    if fence is not None and claim(connection, fence) > fence.number:
        return False
    connection.execute("REPLACE INTO notes VALUES (?, ?)", (name, value))
    return True


def read(connection: sqlite3.Connection, name: str) -> bytes | None:
    """See `NoteStore.noted`."""
    row = connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def claim(connection: sqlite3.Connection, fence: NoteFence) -> int:
    """See `NoteStore.claim_notes`."""
    highest = int(read(connection, fence.name) or b"0")
    if fence.number > highest:
        connection.execute("REPLACE INTO notes VALUES (?, ?)", (fence.name, b"%d" % fence.number))
    return max(highest, fence.number)
