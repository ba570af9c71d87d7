"""Reads the settings from the environment, and refuses unknown variables that look like settings."""

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic_settings import SettingsError

from dyorc.config import Settings
from dyorc.errors import ConfigurationError

_PREFIX = "DYORC_"
_NO_SETTINGS = frozenset({"DYORC_NUM_THREADS"})
"""Set for replicas: the threads a program may use."""

_KUBERNETES = re.compile(r"DYORC(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_KUBERNETES_PORT = re.compile(r"DYORC(_\w+)?_PORT")
"""With an URL as its value. Kubernetes sets these for each service whose name begins with ``dyorc``."""


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Returns the settings in the environment, with defaults for the others.

    A misspelt name is an error, not a warning: if a server starts without the keys file, limit or store that somebody
    meant to set, they notice too late.

    Args:
        environment: Where names are looked up; values are always those of the process.

    Raises:
        ConfigurationError: If a variable that begins with ``DYORC_`` is not a setting, or its value cannot be used; names it.
    """
    known = set(_names(Settings, _PREFIX)) | _NO_SETTINGS
    for name in sorted(environment):
        wanted = name.upper()
        if wanted.startswith(_PREFIX) and wanted not in known and not _is_of_kubernetes(wanted, environment[name]):
            raise ConfigurationError(f"there is no setting {name}{_nearest(wanted, known)}; docs/operations.md lists all")
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigurationError("; ".join(map(_complaint, error.errors()))) from error
    except SettingsError as error:
        raise ConfigurationError(f"the environment cannot be read: {error}, expected JSON") from error


def _names(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        full = prefix + name.upper()
        yield full
        if isinstance(field.default, BaseModel):
            yield from _names(type(field.default), f"{full}__")


def _is_of_kubernetes(name: str, value: str) -> bool:
    return bool(_KUBERNETES.fullmatch(name) or (_KUBERNETES_PORT.fullmatch(name) and "://" in value))


def _nearest(name: str, known: set[str]) -> str:
    """Returns what was probably meant, in parentheses: settings of that name in any section, or the most similar one."""
    last = f"__{name.removeprefix(_PREFIX).rpartition('__')[2]}"
    found = sorted(one for one in known if one.endswith(last))
    if not found:
        rests = [one.removeprefix(_PREFIX) for one in known]
        found = [_PREFIX + one for one in get_close_matches(name.removeprefix(_PREFIX), rests, n=1)]
    return f" (did you mean {' or '.join(found[:3])}?)" if found else ""


def _complaint(error: Mapping[str, object]) -> str:
    place = error["loc"]
    name = _PREFIX + "__".join(map(str, place)).upper() if isinstance(place, tuple) else "the settings"
    return f"{name} is {str(error['input'])[:80]!r}: {error['msg']}"
