"""The tables of a SQLite store, and the migrations from older versions.

    jobs      one row per job; `state` and the three times say who may claim it
    bodies    requests (kind 0) until their jobs end, results (kind 1) after that: apart, so that searching jobs reads no tensors
    usage     what the jobs of each tenant take together; triggers keep it up to date with `jobs.num_bytes`
    webhooks  ended jobs whose webhook has not been delivered yet
    notes     what servers have learned, by name

`PRAGMA user_version` is the version of the tables. A file of a newer version is refused: its meaning is unknown here.
"""

from typing import Any, Protocol

from dyorc.store.base import RECORD_BYTES


class SqlConnection(Protocol):
    """The part of a connection that statements need."""

    def execute(self, sql: str, parameters: Any = (), /) -> Any: ...


VERSION = 4

REQUEST, RESULT = 0, 1
"""Kinds of bodies."""

_STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE jobs (
            id TEXT PRIMARY KEY, tenant TEXT NOT NULL, model_name TEXT NOT NULL, model_version TEXT NOT NULL,
            state TEXT NOT NULL, is_urgent INTEGER NOT NULL, terms TEXT NOT NULL, ttl_s REAL NOT NULL, webhook TEXT NOT NULL,
            idempotency_key TEXT, digest TEXT NOT NULL, num_attempts INTEGER NOT NULL, token INTEGER NOT NULL, owner TEXT,
            created_s REAL NOT NULL, ready_s REAL NOT NULL, started_s REAL, lease_until_s REAL, finished_s REAL, expires_s REAL,
            error TEXT
        ) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX jobs_by_key ON jobs (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL",
        "CREATE INDEX jobs_by_tenant ON jobs (tenant, id)",
        "CREATE INDEX jobs_by_tenant_and_state ON jobs (tenant, state, id)",
        "CREATE INDEX jobs_queued ON jobs (is_urgent, tenant, id) WHERE state = 'queued'",
        "CREATE INDEX jobs_leased ON jobs (lease_until_s) WHERE state = 'running'",
        "CREATE INDEX jobs_ended ON jobs (expires_s) WHERE expires_s IS NOT NULL",
        """CREATE TABLE bodies (
            job_id TEXT NOT NULL, kind INTEGER NOT NULL, json_bytes INTEGER, data BLOB NOT NULL, PRIMARY KEY (job_id, kind)
        )""",
        "CREATE TABLE turns (tenant TEXT PRIMARY KEY, turn INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TABLE webhooks (job_id TEXT PRIMARY KEY, due_s REAL NOT NULL, num_attempts INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE INDEX webhooks_due ON webhooks (due_s)",
    ),
    (
        "ALTER TABLE jobs ADD COLUMN num_bytes INTEGER NOT NULL DEFAULT 0",
        f"UPDATE jobs SET num_bytes = {RECORD_BYTES} + COALESCE((SELECT SUM(LENGTH(data)) FROM bodies WHERE job_id = id), 0)",
        "CREATE TABLE usage (tenant TEXT PRIMARY KEY, num_bytes INTEGER NOT NULL) WITHOUT ROWID",
        "INSERT INTO usage SELECT tenant, SUM(num_bytes) FROM jobs GROUP BY tenant",
        """CREATE TRIGGER usage_of_new AFTER INSERT ON jobs BEGIN
            INSERT INTO usage VALUES (NEW.tenant, NEW.num_bytes)
            ON CONFLICT DO UPDATE SET num_bytes = num_bytes + excluded.num_bytes;
        END""",
        """CREATE TRIGGER usage_of_changed AFTER UPDATE OF num_bytes ON jobs BEGIN
            UPDATE usage SET num_bytes = num_bytes + NEW.num_bytes - OLD.num_bytes WHERE tenant = NEW.tenant;
        END""",
        """CREATE TRIGGER usage_of_gone AFTER DELETE ON jobs BEGIN
            UPDATE usage SET num_bytes = num_bytes - OLD.num_bytes WHERE tenant = OLD.tenant;
            DELETE FROM usage WHERE tenant = OLD.tenant AND num_bytes <= 0;
        END""",
    ),
    (
        "DROP TABLE turns",
        "DROP INDEX jobs_queued",
        "CREATE INDEX jobs_queued ON jobs (is_urgent, tenant, model_name, id, ready_s) WHERE state = 'queued'",
    ),
    ("CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",),
)
"""The statements that migrate each version to the next."""


class NewerSchemaError(Exception):
    """The file was written by a newer DyOrc."""


def migrate(connection: SqlConnection) -> None:
    """Migrates a file to this version, within the open transaction.

    Raises:
        NewerSchemaError: If its version is newer.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise NewerSchemaError(f"its tables have version {version}, expected at most {VERSION}: a newer DyOrc wrote it")
    for statements in _STEPS[version:]:
        for statement in statements:
            connection.execute(statement)
    if version < VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")


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
