"""``dyorc keys``: makes, lists and revokes API keys in a keys file. A running server notices changes within a second."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from dyorc.errors import ConfigurationError
from dyorc.gateway.keys import KeyRecord, TenantRecord, new_key, read_tenants, write_tenants
from dyorc.settings.settings_reader import read_settings

app = typer.Typer(no_args_is_help=True, help="Makes, lists and revokes API keys.")
_console = Console(soft_wrap=True)

_UNLIMITED = 100_000
"""Columns of a table whose lines are as long as needed: a limit that is cut off would be misread."""

File = Annotated[
    Path | None, typer.Option("--file", "-f", help="The keys file; by default the one in the settings.", dir_okay=False)
]


@app.command()
def add(
    tenant: Annotated[str, typer.Option(help="The tenant who gets the key; created if new.")],
    file: File = None,
    weight: Annotated[float | None, typer.Option(help="The tenant's share of queues, relative to others.")] = None,
    max_requests: Annotated[int | None, typer.Option(help="Requests that the tenant may have in flight.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Bytes of requests that the tenant may have in flight.")] = None,
    max_requests_per_s: Annotated[float | None, typer.Option(help="Requests that the tenant may send per second.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model that the tenant may use; may be repeated; all by default.")
    ] = None,
    valid_days: Annotated[float | None, typer.Option(min=0, help="Days until the key expires; by default never.")] = None,
    highest_priority: Annotated[
        int | None,
        typer.Option(min=0, help="Highest priority that the key may ask for; 1 is the highest of all, 0 means none."),
    ] = None,
    may_manage: Annotated[
        bool, typer.Option("--may-manage", help="Let the key change how the server runs, such as with `dyorc scale`.")
    ] = False,
    note: Annotated[str, typer.Option(help="A note for people.")] = "",
) -> None:
    """Makes a key and prints it. Only its hash is kept: a lost key has to be replaced."""
    path = _path(file)
    tenants = read_tenants(path) if path.exists() else []
    given: dict[str, Any] = {
        "weight": weight,
        "max_requests": max_requests,
        "max_bytes": max_bytes,
        "max_requests_per_s": max_requests_per_s,
        "models": model,
    }
    key, record = new_key()
    expires = None if valid_days is None else datetime.now(UTC).replace(microsecond=0) + timedelta(days=valid_days)
    record = msgspec.structs.replace(record, expires=expires, highest_priority=highest_priority, may_manage=may_manage, note=note)
    write_tenants(path, _with_key(tenants, tenant, {name: value for name, value in given.items() if value is not None}, record))
    print(key)  # alone on standard output, so that it can be piped to where it belongs
    Console(stderr=True, soft_wrap=True).print(f"Key {record.id} of tenant {tenant}, in {path}. It is shown only now.")


@app.command(name="list")
def list_keys(file: File = None) -> None:
    """Lists tenants with their limits and keys, without secrets."""
    columns = [
        Column(name, no_wrap=True) for name in ("tenant", "weight", "limits", "models", "key", "expires", "priority", "note")
    ]
    table = Table(*columns, box=None, padding=(0, 2))
    for one in read_tenants(_path(file)):
        cells = [one.name, f"{one.weight:g}", _limits(one), "all" if one.models is None else escape(", ".join(one.models))]
        for key in one.keys:
            table.add_row(*cells, key.id, _expiry(key), _priorities(key), escape(key.note))
        if not one.keys:
            table.add_row(*cells, "none")
    Console(width=_UNLIMITED).print(table)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id: the part between its underscores.")],
    file: File = None,
) -> None:
    """Removes a key. Its tenant stays, with its other keys."""
    path = _path(file)
    tenants = read_tenants(path)
    kept = [msgspec.structs.replace(one, keys=[key for key in one.keys if key.id != key_id]) for one in tenants]
    if kept == tenants:
        raise ConfigurationError(f"keys file {path} has no key {key_id!r}; expected one of {_ids(tenants)}")
    write_tenants(path, kept)
    print(f"Revoked {key_id}.")


def _path(file: Path | None) -> Path:
    if file is not None:
        return file
    if named := read_settings().gateway.keys_file:
        return Path(named)
    raise ConfigurationError("no keys file: expected --file, or the setting gateway.keys_file")


def _with_key(tenants: list[TenantRecord], name: str, given: dict[str, Any], key: KeyRecord) -> list[TenantRecord]:
    """Adds a key to the tenants and applies the given limits to its tenant.

    Raises:
        ConfigurationError: If a name or a limit is invalid.
    """
    found = next((one for one in tenants if one.name == name), None)
    fields = {} if found is None else msgspec.structs.asdict(found)
    keys = [*(found.keys if found else []), key]
    try:
        changed = msgspec.convert({**fields, **given, "name": name, "keys": keys}, TenantRecord)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"tenant {name!r}: {error}") from error
    if found is None:
        return [*tenants, changed]
    return [changed if one is found else one for one in tenants]


def _ids(tenants: list[TenantRecord]) -> list[str]:
    return sorted(key.id for one in tenants for key in one.keys)


def _limits(one: TenantRecord) -> str:
    limits = {"requests": one.max_requests, "bytes": one.max_bytes, "requests/s": one.max_requests_per_s}
    return ", ".join(f"{value:.15g} {name}" for name, value in limits.items() if value is not None) or "none"


def _priorities(key: KeyRecord) -> str:
    if key.highest_priority is None:
        return "any"
    return f"from {key.highest_priority}" if key.highest_priority else "none"


def _expiry(key: KeyRecord) -> str:
    if key.expires is None:
        return "never"
    has_expired = key.expires.timestamp() <= time.time()
    return f"{key.expires:%Y-%m-%d %H:%M} UTC{' (over)' if has_expired else ''}"
