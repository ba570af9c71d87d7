"""Returns unused space in a SQLite file to the disk: by itself, a file never shrinks.

The file is in ``auto_vacuum = INCREMENTAL`` mode: it knows which page refers to which, so its last pages can be moved into free
ones, a few at a time, between other work. A file made by an older DyOrc is rewritten once.
"""

from dyorc.store.sqlite_schema import SqlConnection

_INCREMENTAL = 2
_SLACK_BYTES = 16 * 2**20
"""Free pages that are kept for later writes."""
_STEP_BYTES = 16 * 2**20
"""Pages moved in one transaction, while other steps wait."""
_MAX_LOG_BYTES = 64 * 2**20
"""Size of the write-ahead log after it was written back."""


def prepare_new(connection: SqlConnection) -> None:
    """Sets the mode of a file. Call it before there is any table, and before the journal's mode is set; a file with tables is
    not changed.
    """
    connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")


def rewrite_old(connection: SqlConnection) -> None:
    """Switches a file to this mode that was made without it. Call it outside of transactions."""
    connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
    if _pragma(connection, "auto_vacuum") != _INCREMENTAL:
        connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        connection.execute("VACUUM")


def give_back(connection: SqlConnection) -> bool:
    """Cuts free pages off the file's end, as many as fit one transaction. Returns whether there were more."""
    page_bytes = _pragma(connection, "page_size")
    spare_bytes = _pragma(connection, "freelist_count") * page_bytes - _SLACK_BYTES
    if spare_bytes <= 0:
        return False
    num_pages = max(1, min(spare_bytes, _STEP_BYTES) // page_bytes)
    connection.execute(f"PRAGMA incremental_vacuum({num_pages})").fetchall()  # each row that is fetched moves one page
    return True


def _pragma(connection: SqlConnection, name: str) -> int:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
