"""Settings from one source, the file ``dyorc.toml`` or the environment, and several sources one above the other."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from dyorc.config import Settings
from dyorc.errors import ConfigurationError
from dyorc.settings.setting_names import PROGRAMS, SETTINGS, is_secret
from dyorc.system.toml_lines import KeyPath, lines_of
from dyorc.system.toml_text import parse_toml


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """The settings of one source.

    Attributes:
        values: As nested tables.
        place: Returns where the source sets the value at a path, in words for people, e.g. ``dyorc.toml:3``.
    """

    values: Mapping[str, Any]
    place: Callable[[KeyPath], str]

    def has(self, path: KeyPath) -> bool:
        """Returns whether it sets the value at this path, or an element of it."""
        table: Any = self.values
        for key in path:
            if not isinstance(table, Mapping):
                return True
            if key not in table:
                return False
            table = table[key]
        return True


def merge_layers(layers: Iterable[SettingsLayer]) -> dict[str, Any]:
    """Returns the values of all; those of later layers win."""
    values: dict[str, Any] = {}
    for layer in layers:
        values = _merge(values, layer.values)
    return values


def place_of(path: KeyPath, layers: Sequence[SettingsLayer]) -> str | None:
    """Returns where the value at a path comes from; None if it is the default."""
    return next((layer.place(path) for layer in reversed(layers) if path and layer.has(path)), None)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for key, value in above.items():
        under = both.get(key)
        both[key] = _merge(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return both


CONFIG = "DYORC_CONFIG"
"""Names the configuration file."""

_PREFIX = "DYORC_"
_OF_CLIENTS = frozenset({"DYORC_URL", "DYORC_API_KEY", "DYORC_CA"})
"""What commands that talk to a server take from the environment; a server may be started in the same shell."""
OF_COMPOSE = frozenset(
    f"DYORC_{name}"
    for name in (
        "CELLS_CPUS", "CELLS_MEMORY", "CORE_IMAGE", "CUDA_IMAGE", "GATEWAY_CPUS", "GPUS", "HEAD_CPUS", "IMAGE", "NUM_CELLS",
        "ORCHESTRATOR_CPUS", "SHM_SIZE", "TENSORS_SIZE", "TOML", "TRACES_ENDPOINT", "WORKER_CORES", "WORKER_CPUS",
        "WORKER_DRAIN_S", "WORKER_MEMORY",
    )
)  # fmt: skip
"""Variables of the Compose files, which servers ignore. Ports are in `PORTS_OF_COMPOSE`; `DYORC_WORKFLOWS` is a setting, too."""
PORTS_OF_COMPOSE = {
    "DYORC_PORT": "DYORC_GATEWAY__PORT", "DYORC_PORT_2": "DYORC_GATEWAY__PORT",
    "DYORC_GRPC_PORT": "DYORC_GATEWAY__GRPC_PORT", "DYORC_GRPC_PORT_2": "DYORC_GATEWAY__GRPC_PORT",
}  # fmt: skip
"""Variables of the Compose files that look like settings, and the settings that may be meant. They are refused: that a server has
another port than expected would be noticed too late."""
_NO_SETTINGS = frozenset({"DYORC_NUM_THREADS", "DYORC_COMPILE", CONFIG}) | _OF_CLIENTS | OF_COMPOSE
"""The first is set for replicas: the threads a program may use."""
_OF_PROGRAMS = f"{_PREFIX}{PROGRAMS.upper()}__"

_JSON_LIST, _JSON_TABLE = 'a list as JSON, such as ["a", "b"]', 'a table as JSON, such as {"key": "value"}'
_MAX_SHOWN = 80

_KUBERNETES = re.compile(r"DYORC(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_KUBERNETES_PORT = re.compile(r"DYORC(_\w+)?_PORT")
"""With an URL as its value. Kubernetes sets these for each service whose name begins with ``dyorc``."""


class _Variables(BaseSettings, Settings):  # pyright: ignore[reportIncompatibleVariableOverride]  # it adds to the configuration
    """The variables of the settings."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_nested_delimiter="__")


def environment_layer(environment: Mapping[str, str] = os.environ) -> SettingsLayer:
    """Returns the settings in the environment.

    A misspelt name is an error, not a warning: a missing keys file, limit or store would otherwise be noticed too late.

    Args:
        environment: Where names are looked up; values are always those of the process.

    Raises:
        ConfigurationError: If a variable that begins with ``DYORC_`` is not a setting, or cannot be read; names it.
    """
    known = {_name(path) for path in SETTINGS} | _NO_SETTINGS
    for name in sorted(environment):
        if name.upper().startswith(_PREFIX) and not _is_known(name.upper(), environment[name], known):
            if name.upper() in PORTS_OF_COMPOSE:
                meant = PORTS_OF_COMPOSE[name.upper()]
                raise ConfigurationError(f"{name} is a variable of docker-compose.yml and no setting: unset it, or set {meant}")
            suggested = _nearest(name.upper(), known - _NO_SETTINGS)
            raise ConfigurationError(f"there is no setting {name}{suggested}; docs/reference/settings.md lists all")
    source = EnvSettingsSource(_Variables)
    try:
        values = source()
    except (SettingsError, RecursionError) as error:  # lists in lists, thousands of them
        raise ConfigurationError(_unreadable(source) or f"the environment cannot be read: {error}, expected JSON") from error
    return SettingsLayer(values, _place)


def _unreadable(source: EnvSettingsSource) -> str:
    """Returns which variable is not the JSON that its setting needs; empty if none is by itself."""
    variables = source.env_vars
    for name, value in variables.items():
        source.env_vars = {name: value}
        try:
            source()
        except (SettingsError, RecursionError):
            path = next((path for path in SETTINGS if _name(path) == name.upper()), ())
            shown = "not shown" if value is None or is_secret(path) else repr(value[:_MAX_SHOWN])
            is_list = path in SETTINGS and not SETTINGS[path].is_section
            return f"{name.upper()} is {shown}, expected {_JSON_LIST if is_list else _JSON_TABLE}"
    return ""


def _place(path: KeyPath) -> str:
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


USUAL = Path("dyorc.toml")


def find_file(named: Path | None) -> Path | None:
    """Returns the file to read: the one that is named, the one in the environment, or ``dyorc.toml`` in the current folder."""
    if named is not None:
        return named
    if in_environment := os.environ.get(CONFIG):
        return Path(in_environment)
    return USUAL if USUAL.is_file() else None


def file_layer(path: Path) -> SettingsLayer:
    """Reads a file. Relative paths in it are relative to its folder.

    Raises:
        ConfigurationError: If there is no such file, or it is not TOML; says where.
    """
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"configuration file {path} cannot be read: {error}") from error
    try:
        values, lines = parse_toml(text), lines_of(text)
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    return SettingsLayer(_resolve_paths(values, path.resolve().parent), lambda key: f"{path}:{_line(key, lines)}")


def _line(key: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    return next((lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines), 1)


def _resolve_paths(values: Mapping[str, Any], folder: Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the values with absolute paths. Values that are not what is expected stay, to be refused later."""
    resolved: dict[str, Any] = {}
    for key, value in values.items():
        path = (*above, key)
        setting = SETTINGS.get(path)
        if isinstance(value, Mapping) and setting is not None and setting.is_section:
            resolved[key] = _resolve_paths(value, folder, path)
        elif isinstance(value, str) and value and setting is not None and setting.is_file:
            resolved[key] = str(folder / value)
        elif path == ("workflows",) and isinstance(value, list):
            resolved[key] = [_target(target, folder) if isinstance(target, str) else target for target in value]
        else:
            resolved[key] = value
    return resolved


def _target(target: str, folder: Path) -> str:
    place, colon, name = target.rpartition(":")
    return f"{folder / place}{colon}{name}" if place.endswith(".py") else target
