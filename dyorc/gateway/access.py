"""Who may use the server: API keys and the tenants they belong to.

Keys are looked up on the event loop's thread, once per request, before anything of it is read.
"""

import hmac
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import structlog

from dyorc.errors import AuthenticationError, ConfigurationError
from dyorc.gateway.keys import digest, id_of, read_tenants
from dyorc.gateway.tenants import ANONYMOUS, Tenant

_log = structlog.get_logger("dyorc.gateway")

_CHECK_INTERVAL_S = 1.0
_MAX_KEY_CHARACTERS = 256
_NO_KEY_SHA256 = "0" * 64

_State: TypeAlias = tuple[int, int, int, int]
"""Modification time in ns, size, inode and mode of a file: any change means that it was written or replaced."""


@dataclass(frozen=True, slots=True)
class _KnownKey:
    sha256: str
    expires_s: float | None
    tenant: Tenant


class Access:
    """Finds the tenant of a key.

    When a key is asked for, the file is checked at most once per second, and read again if it has changed; so a key that is
    removed from it stops working within a second, without a restart. A file that is broken or gone is reported and changes
    nothing.

    Args:
        keys_file: Where keys and tenants are listed (see `dyorc.gateway.keys`); empty: no key is needed. It is read here, so
            that a server with a broken file does not start.
        clock_s: Clock for the checks of the file.
        now_s: The time of day, for keys that expire: seconds since 1970.

    Attributes:
        is_open: Whether clients need no key.

    Raises:
        ConfigurationError: If the file cannot be read or is wrong.
    """

    def __init__(
        self, keys_file: str = "", clock_s: Callable[[], float] = time.monotonic, now_s: Callable[[], float] = time.time
    ) -> None:
        self.is_open = not keys_file
        self._path = Path(keys_file)
        self._clock_s = clock_s
        self._now_s = now_s
        self._keys: dict[str, _KnownKey] = {}
        self._checked_s = clock_s()
        self._state: _State | None = None
        if keys_file:
            self._read(self._look())

    def tenant_of(self, key: str | None) -> Tenant:
        """Returns the tenant of a key.

        Takes the same time for a wrong secret as for an unknown key.

        Raises:
            AuthenticationError: If the key is missing, unknown or expired. Names at most its id, and that only if it is right.
        """
        if self.is_open:
            return ANONYMOUS
        self._refresh()
        if not key:
            raise AuthenticationError("the request has no API key: send 'Authorization: Bearer KEY' or 'X-API-Key: KEY'")
        key = key[:_MAX_KEY_CHARACTERS]
        key_id = id_of(key)
        known = self._keys.get(key_id)
        is_right = hmac.compare_digest(digest(key), _NO_KEY_SHA256 if known is None else known.sha256)
        if known is None or not is_right:
            raise AuthenticationError("the API key is unknown or was revoked")
        if known.expires_s is not None and self._now_s() >= known.expires_s:
            raise AuthenticationError(f"API key {key_id} has expired")
        return known.tenant

    def _refresh(self) -> None:
        now_s = self._clock_s()
        if now_s - self._checked_s < _CHECK_INTERVAL_S:
            return
        self._checked_s = now_s
        try:
            state = self._look()
            if state == self._state:
                return
            self._read(state)
        except ConfigurationError as error:
            if self._state is not None:
                _log.error("keys_file_broken", error=str(error), num_keys=len(self._keys))
            self._state = None  # read it again, even if it comes back unchanged
            return
        _log.info("keys_file_read", path=str(self._path), num_keys=len(self._keys))

    def _look(self) -> _State:
        """Returns what changes when the file does.

        Raises:
            ConfigurationError: If it does not exist.
        """
        try:
            status = os.stat(self._path)
        except OSError as error:
            raise ConfigurationError(f"keys file {self._path}: {error.strerror}") from error
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode

    def _read(self, state: _State) -> None:
        keys: dict[str, _KnownKey] = {}
        for record in read_tenants(self._path):
            tenant = record.tenant()
            for key in record.keys:
                expires_s = None if key.expires is None else key.expires.timestamp()
                own = replace(tenant, highest_priority=key.highest_priority, may_manage=key.may_manage)
                keys[key.id] = _KnownKey(key.sha256, expires_s, own)
        self._keys = keys
        self._state = state
        if state[-1] & (stat.S_IROTH | stat.S_IWOTH):
            _log.warning("keys_file_exposed", path=str(self._path), mode=stat.filemode(state[-1]), expected="-rw-------")
