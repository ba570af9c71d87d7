"""Settings from the environment. Unknown variables that look like settings are refused."""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from dyorc.config import Settings
from dyorc.errors import ConfigurationError
from dyorc.settings.setting_names import PROGRAMS, SETTINGS
from dyorc.settings.settings_layers import SettingsLayer
from dyorc.system.toml_lines import Path

CONFIG = "DYORC_CONFIG"
"""Names the configuration file."""

_PREFIX = "DYORC_"
_NO_SETTINGS = frozenset({"DYORC_NUM_THREADS", CONFIG})
"""The former is set for replicas: the threads a program may use."""
_OF_PROGRAMS = f"{_PREFIX}{PROGRAMS.upper()}__"

_KUBERNETES = re.compile(r"DYORC(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_KUBERNETES_PORT = re.compile(r"DYORC(_\w+)?_PORT")
"""With an URL as its value. Kubernetes sets these for each service whose name begins with ``dyorc``."""


class _Variables(BaseSettings, Settings):  # pyright: ignore[reportIncompatibleVariableOverride]  # it adds to the configuration
    """The variables of the settings."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_nested_delimiter="__")


def environment_layer(environment: Mapping[str, str] = os.environ) -> SettingsLayer:
    """Returns the settings in the environment.

    A misspelt name is an error, not a warning: if a server starts without the keys file, limit or store that somebody
    meant to set, they notice too late.

    Args:
        environment: Where names are looked up; values are always those of the process.

    Raises:
        ConfigurationError: If a variable that begins with ``DYORC_`` is not a setting, or cannot be read; names it.
    """
    known = {_name(path) for path in SETTINGS} | _NO_SETTINGS
    for name in sorted(environment):
        if name.upper().startswith(_PREFIX) and not _is_known(name.upper(), environment[name], known):
            suggested = _nearest(name.upper(), known)
            raise ConfigurationError(f"there is no setting {name}{suggested}; docs/operations.md lists all")
    try:
        values = EnvSettingsSource(_Variables)()
    except SettingsError as error:
        raise ConfigurationError(f"the environment cannot be read: {error}, expected JSON") from error
    return SettingsLayer(values, _place)


def _place(path: Path) -> str:
    """Returns the variable that sets the value at a path: its own, or that of the section."""
    present = {name.upper() for name in os.environ}
    candidates = [_name(tuple(map(str, path[:length]))) for length in range(len(path), 0, -1)]
    return next((name for name in candidates if name in present), candidates[0])


def _name(path: tuple[str, ...]) -> str:
    return _PREFIX + "__".join(path).upper()


def _is_known(name: str, value: str, known: set[str]) -> bool:
    return name in known or name.startswith(_OF_PROGRAMS) or _is_of_kubernetes(name, value)


def _is_of_kubernetes(name: str, value: str) -> bool:
    return bool(_KUBERNETES.fullmatch(name) or (_KUBERNETES_PORT.fullmatch(name) and "://" in value))


def _nearest(name: str, known: set[str]) -> str:
    """Returns what was probably meant, in parentheses: settings of that name, in the section most like the one that was named if
    there is any, or the most similar one.
    """
    section, _, last = name.removeprefix(_PREFIX).rpartition("__")
    candidates = sorted(variable for variable in known if variable.endswith(f"__{last}"))
    sections = {variable.removeprefix(_PREFIX).rpartition("__")[0]: variable for variable in candidates}
    if close := get_close_matches(section, sections, n=1):
        candidates = [sections[close[0]]]
    if not candidates:
        rests = [variable.removeprefix(_PREFIX) for variable in known]
        candidates = [_PREFIX + variable for variable in get_close_matches(name.removeprefix(_PREFIX), rests, n=1)]
    return f" (did you mean {' or '.join(candidates[:3])}?)" if candidates else ""
