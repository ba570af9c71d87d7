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
from dyorc.system.finite_option import finite

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
    weight: Annotated[
        float | None, typer.Option(callback=finite, help="The tenant's share of queues, relative to others.")
    ] = None,
    max_requests: Annotated[int | None, typer.Option(help="Requests that the tenant may have in flight.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Bytes of requests that the tenant may have in flight.")] = None,
    max_requests_per_s: Annotated[
        float | None, typer.Option(callback=finite, help="Requests that the tenant may send per second.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model that the tenant may use; may be repeated; all by default.")
    ] = None,
    valid_days: Annotated[
        float | None, typer.Option(callback=finite, min=0, help="Days until the key expires; by default never.")
    ] = None,
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
    limits: dict[str, Any] = {
        "weight": weight,
        "max_requests": max_requests,
        "max_bytes": max_bytes,
        "max_requests_per_s": max_requests_per_s,
        "models": model,
    }
    key, record = new_key()
    expires = None if valid_days is None else datetime.now(UTC).replace(microsecond=0) + timedelta(days=valid_days)
    record = msgspec.structs.replace(record, expires=expires, highest_priority=highest_priority, may_manage=may_manage, note=note)
    write_tenants(path, _with_key(tenants, tenant, {name: value for name, value in limits.items() if value is not None}, record))
    print(key)  # alone on standard output, so that it can be piped to where it belongs
    Console(stderr=True, soft_wrap=True).print(f"Key {record.id} of tenant {tenant}, in {path}. It is shown only now.")


@app.command(name="list")
def list_keys(file: File = None) -> None:
    """Lists tenants with their limits and keys, without secrets."""
    columns = [
        Column(name, no_wrap=True) for name in ("tenant", "weight", "limits", "models", "key", "expires", "priority", "note")
    ]
    table = Table(*columns, box=None, padding=(0, 2))
    for tenant in read_tenants(_path(file)):
        cells = [
            tenant.name,
            f"{tenant.weight:g}",
            _limits(tenant),
            "all" if tenant.models is None else escape(", ".join(tenant.models)),
        ]
        for key in tenant.keys:
            table.add_row(*cells, key.id, _expiry(key), _priorities(key), escape(key.note))
        if not tenant.keys:
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
    kept = [msgspec.structs.replace(tenant, keys=[key for key in tenant.keys if key.id != key_id]) for tenant in tenants]
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


def _with_key(tenants: list[TenantRecord], name: str, limits: dict[str, Any], key: KeyRecord) -> list[TenantRecord]:
    """Adds a key to the tenants and applies limits to its tenant.

    Raises:
        ConfigurationError: If a name or a limit is invalid.
    """
    known = next((tenant for tenant in tenants if tenant.name == name), None)
    fields = {} if known is None else msgspec.structs.asdict(known)
    keys = [*(known.keys if known else []), key]
    try:
        changed = msgspec.convert({**fields, **limits, "name": name, "keys": keys}, TenantRecord)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"tenant {name!r}: {error}") from error
    if known is None:
        return [*tenants, changed]
    return [changed if tenant is known else tenant for tenant in tenants]


def _ids(tenants: list[TenantRecord]) -> list[str]:
    return sorted(key.id for tenant in tenants for key in tenant.keys)


def _limits(tenant: TenantRecord) -> str:
    limits = {"requests": tenant.max_requests, "bytes": tenant.max_bytes, "requests/s": tenant.max_requests_per_s}
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
