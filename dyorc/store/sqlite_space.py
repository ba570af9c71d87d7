"""Gives space in a SQLite file back to the disk: without that, a file stays as large as it ever was.

The file is in ``auto_vacuum = INCREMENTAL`` mode: it knows which page refers to which, so its last pages can be moved into free
ones, a few at a time, between other work. A file that an older DyOrc made is rewritten once.
"""

from dyorc.store.sqlite_schema import Connection

_INCREMENTAL = 2
_SLACK_BYTES = 16 * 2**20
"""Free pages that are kept for what comes next."""
_STEP_BYTES = 16 * 2**20
"""Moved in one transaction, while other steps wait."""
_MAX_LOG_BYTES = 64 * 2**20
"""What is left of the write-ahead log once it has been written back."""


def prepare_new(connection: Connection) -> None:
    """To be called before there is any table, and before the journal's mode is set; a file that has some is not changed."""
    connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")


def rewrite_old(connection: Connection) -> None:
    """Gives a file the mode that was made without it. Outside of transactions."""
    connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
    if _pragma(connection, "auto_vacuum") != _INCREMENTAL:
        connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        connection.execute("VACUUM")


def give_back(connection: Connection) -> bool:
    """Cuts free pages off the file's end, as many as one transaction should. Whether there were too many."""
    page_bytes = _pragma(connection, "page_size")
    spare_bytes = _pragma(connection, "freelist_count") * page_bytes - _SLACK_BYTES
    if spare_bytes <= 0:
        return False
    num_pages = max(1, min(spare_bytes, _STEP_BYTES) // page_bytes)
    connection.execute(f"PRAGMA incremental_vacuum({num_pages})").fetchall()  # each row that is fetched moves one page
    return True


def _pragma(connection: Connection, name: str) -> int:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
