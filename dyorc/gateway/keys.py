"""API keys, and the file that lists them.

A key is ``dyk_<id>_<secret>``; the file holds its id and the SHA-256 of the whole key, never the key. A slow hash, as for
passwords, would protect nothing here: the secret is 32 random bytes, so there is no dictionary to try, and an attacker who could
search 2^256 keys would not be stopped by a factor of a million. It would only make every request slower.

    [[tenant]]
    name = "search"
    weight = 2.0                    # everything but the name is optional
    max_requests = 100
    max_bytes = 268435456
    max_requests_per_s = 50.0
    models = ["classify"]
    keys = [
        {id = "1f...", sha256 = "9b...", expires = 2027-01-01T00:00:00Z, highest_priority = 5, note = "the crawler"},
    ]

Read by `Access`, written by ``dyorc keys``. Plain functions on files; safe in any thread.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dyorc.errors import ConfigurationError
from dyorc.gateway.tenants import Tenant
from dyorc.system.durable_files import replace_file
from dyorc.system.toml_text import read_toml

_PREFIX = "dyk"
_ID_BYTES = 6
_SECRET_BYTES = 32
_MODE = 0o600

_HEADER = "# Tenants and the hashes of their API keys. Written by `dyorc keys`, which drops comments; use `note`.\n"

_Name = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e9)]


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stored record of a key.

    Attributes:
        sha256: Of the whole key, in hexadecimal.
        expires: When it stops working; None: never.
        highest_priority: The highest priority it may ask for: 1 is the highest of all, 0 means none, None any.
        may_manage: Whether it may change how the server runs.
        note: For people.
    """

    id: Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{{2 * _ID_BYTES}}}$")]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    expires: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    highest_priority: Annotated[int, msgspec.Meta(ge=0)] | None = None
    may_manage: bool = False
    note: str = ""


class TenantRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant and its keys; the other fields are those of `Tenant`."""

    name: _Name
    weight: _Positive = 1.0
    max_requests: _Count | None = None
    max_bytes: _Count | None = None
    max_requests_per_s: _Positive | None = None
    models: list[str] | None = None
    keys: list[KeyRecord] = []

    def tenant(self) -> Tenant:
        """Returns the tenant without its keys."""
        return Tenant(
            name=self.name,
            weight=self.weight,
            max_requests=self.max_requests,
            max_bytes=self.max_bytes,
            max_requests_per_s=self.max_requests_per_s,
            models=None if self.models is None else frozenset(self.models),
        )


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: list[TenantRecord] = []


def new_key() -> tuple[str, KeyRecord]:
    """Returns a new key, and the record to store."""
    key_id = secrets.token_hex(_ID_BYTES)
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")
    key = f"{_PREFIX}_{key_id}_{secret}"
    return key, KeyRecord(id=key_id, sha256=digest(key))


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def id_of(key: str) -> str:
    """Returns the id in a key; empty if it has none."""
    prefix, _, rest = key.partition("_")
    return rest.partition("_")[0] if prefix == _PREFIX else ""


def read_tenants(path: Path) -> list[TenantRecord]:
    """Reads the tenants, in the order of the file.

    Raises:
        ConfigurationError: If the file cannot be read or is invalid. Never shows a hash.
    """
    try:
        file = msgspec.convert(read_toml(path), _File)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"keys file {path}: {error}") from error
    for kind, names in (
        ("tenant", [tenant.name for tenant in file.tenant]),
        ("key", [key.id for tenant in file.tenant for key in tenant.keys]),
    ):
        if twice := {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ():
            raise ConfigurationError(f"keys file {path}: {kind} {min(twice)!r} appears more than once")
    return file.tenant


def write_tenants(path: Path, tenants: Sequence[TenantRecord]) -> None:
    """Replaces the file atomically; only its owner can read it. A power cut afterwards does not bring a removed key back.

    Raises:
        OSError: If it cannot be written.
    """
    text = _HEADER + "".join(map(_toml, tenants))
    replace_file(path.resolve(), text.encode(), _MODE)  # follows a symbolic link instead of replacing it


def _toml(tenant: TenantRecord) -> str:
    fields = {name: getattr(tenant, name) for name in tenant.__struct_fields__ if name != "keys"}
    lines = [f"{name} = {_value(value)}\n" for name, value in fields.items() if value is not None]
    keys = [f"    {{{', '.join(f'{name} = {_value(value)}' for name, value in _set_fields(key))}}},\n" for key in tenant.keys]
    return "".join(("\n[[tenant]]\n", *lines, "keys = [\n", *keys, "]\n"))


def _set_fields(key: KeyRecord) -> list[tuple[str, Any]]:
    return [(name, value) for name in key.__struct_fields__ if (value := getattr(key, name)) not in (None, "")]


def _value(value: Any) -> str:
    """Returns a value as TOML: strings and lists of them look as in JSON, except for one control character."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
