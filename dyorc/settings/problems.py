"""Says what is wrong with settings: where, what was expected and what came. Secrets are not shown."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from dyorc.config import ProgramOverrides
from dyorc.errors import DefinitionError
from dyorc.scaling.autoscaling import bounds_of
from dyorc.settings.setting_names import PROGRAMS, SETTINGS, dotted, is_secret, suggestion
from dyorc.settings.settings_sources import SettingsLayer, place_of
from dyorc.system.toml_lines import KeyPath

_MAX_SHOWN = 80
_UNKNOWN = "extra_forbidden"
_LENGTH_IN_PROGRAM = 3
"""The table of all programs, the program, the option."""
_WORDS = {"an object": "a table", "a valid array": "an array"}
"""What Pydantic calls otherwise."""
_KINDS = {dict: "a table", list: "an array"}


def problems_of(error: ValidationError, layers: Sequence[SettingsLayer]) -> list[str]:
    """Returns a line for each value that cannot be used."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for detail in error.errors():
        by_name.setdefault(_named(_path_of(dict(detail)), layers), []).append(dict(detail))
    return [_problem(name, errors) for name, errors in by_name.items()]


def problems_of_programs(programs: Mapping[str, ProgramOverrides], layers: Sequence[SettingsLayer]) -> Iterator[str]:
    """Yields a line for each program whose options contradict each other."""
    for name, overrides in programs.items():
        try:
            bounds_of("", overrides.num_replicas or 1, overrides.autoscaling_config)
        except DefinitionError as error:
            yield f"{_named((PROGRAMS, name), layers)}{error}"


def _problem(name: str, errors: Sequence[Mapping[str, Any]]) -> str:
    path = _path_of(errors[0])
    if errors[0]["type"] == _UNKNOWN:
        return f"{name}: there is no such setting{suggestion(path)}"
    expected = " or ".join(dict.fromkeys(_expected(detail["msg"]) for detail in errors))
    return f"{name} is {_shown(path, errors[0]['input'])}, expected {expected}"


def _named(path: KeyPath, layers: Sequence[SettingsLayer]) -> str:
    """Returns the place and the key; of variables and flags, the place is the key."""
    place = place_of(path, layers)
    if place is None:
        return dotted(path) or "the settings"
    return f"{place}: {dotted(path)}" if ":" in place else place


def _shown(path: KeyPath, value: Any) -> str:
    if type(value) in _KINDS:
        return _KINDS[type(value)]
    return "not shown" if is_secret(path) else repr(value)[:_MAX_SHOWN]


def _path_of(error: Mapping[str, Any]) -> KeyPath:
    """Returns where a value is. Pydantic adds which of several types it tried."""
    path = error["loc"]
    if error["type"] == _UNKNOWN:
        return path
    if path[:1] == (PROGRAMS,):
        return path[:_LENGTH_IN_PROGRAM]
    length = next((length for length in range(len(path), 0, -1) if path[:length] in SETTINGS), 0)
    return path[: length + 1] if isinstance(path[-1], int) else path[:length]


def _expected(message: str) -> str:
    text = re.sub(r"^a valid dictionary or instance of .*", "a table", re.sub(r"^Input should be ", "", message))
    if text.startswith(("greater", "less")):
        text = f"a number {text}"
    return _WORDS.get(text, text)
