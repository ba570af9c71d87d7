"""The store that the setting `STORE` names."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlsplit

from dyorc.errors import DefinitionError
from dyorc.store.base import Store
from dyorc.store.lease_store import LeaseStore
from dyorc.store.sqlite import SqliteStore, default_path
from dyorc.store.sqlite_leases import SqliteLeases
from dyorc.system import extras


def store_of(setting: str) -> Store:
    """Returns a store that is not open yet.

    Args:
        setting: ``sqlite:///path``, or ``redis://``, ``rediss://`` or ``unix://`` as Redis clients know them; empty: the default
            file.

    Raises:
        DefinitionError: If it is something else; shows only its scheme.
        MissingLibraryError: If it is a Redis, and its client is not installed.
    """
    if not setting:
        return SqliteStore(default_path())
    parts = urlsplit(setting)
    match parts.scheme:
        case "sqlite" if not parts.netloc and parts.path:
            return SqliteStore(Path(parts.path))
        case "redis" | "rediss" | "unix":
            extras.require("redis", f"the setting STORE with {parts.scheme}://", "sqlite:///path needs nothing")
            from dyorc.store.redis import RedisStore  # slow to import

            return RedisStore(setting)
        case scheme:
            kind = f"has the scheme {scheme!r}" if scheme else "is no URL"
            raise DefinitionError(f"DYORC_STORE {kind}, expected sqlite:///path or redis://host/0")


def shown_name_of(setting: str) -> str:
    """Returns a store's setting as logs may show it: without passwords and options, and with the default file's path."""
    if not setting:
        return f"sqlite://{default_path()}"
    parts = urlsplit(setting)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def leases_of(setting: str) -> AbstractAsyncContextManager[LeaseStore]:
    """Returns only the leases of a store, not open yet: of a file, nothing else is opened.

    Args:
        setting: As for `store_of`.

    Raises:
        DefinitionError: If it is something else; shows only its scheme.
    """
    store = store_of(setting)
    return SqliteLeases(store.path) if isinstance(store, SqliteStore) else store
