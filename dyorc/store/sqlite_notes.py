"""Notes in a store's SQLite file: the steps of `NoteStore`, each in a transaction of its caller."""

from dyorc.store.base import NoteFence
from dyorc.store.sqlite_schema import SqlConnection


def put(connection: SqlConnection, name: str, value: bytes, fence: NoteFence | None) -> bool:
    """See `NoteStore.note`."""
    if fence is not None and claim(connection, fence) > fence.number:
        return False
    connection.execute("REPLACE INTO notes VALUES (?, ?)", (name, value))
    return True


def read(connection: SqlConnection, name: str) -> bytes | None:
    """See `NoteStore.noted`."""
    row = connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def claim(connection: SqlConnection, fence: NoteFence) -> int:
    """See `NoteStore.claim_notes`."""
    highest = int(read(connection, fence.name) or b"0")
    if fence.number > highest:
        connection.execute("REPLACE INTO notes VALUES (?, ?)", (fence.name, b"%d" % fence.number))
    return max(highest, fence.number)
