"""Reads all settings, and says which cannot be used: where, what was expected and what came. Secrets are not shown. The command
line calls it, once.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dyorc.config import ProgramOverrides, Settings
from dyorc.errors import ConfigurationError, DefinitionError
from dyorc.scaling.autoscaling import bounds_of
from dyorc.settings.setting_names import PROGRAMS, SETTINGS, dotted, is_secret, suggestion
from dyorc.settings.settings_sources import SettingsLayer, environment_layer, file_layer, find_file, merge_layers, place_of
from dyorc.system.toml_lines import KeyPath

_MAX_SHOWN = 80
_UNKNOWN = "extra_forbidden"
_LENGTH_IN_PROGRAM = 3
"""The table of all programs, the program, the option."""
_WORDS = {"an object": "a table", "a valid array": "an array", "a valid tuple": "an array"}
"""What Pydantic calls otherwise."""
_KINDS = {dict: "a table", list: "an array"}


def problems_of(error: ValidationError, layers: Sequence[SettingsLayer]) -> list[str]:
    """Returns a line for each value that cannot be used."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for detail in error.errors():
        by_name.setdefault(_locate(_path_of(dict(detail)), layers), []).append(dict(detail))
    return [_problem(name, errors) for name, errors in by_name.items()]


def problems_of_programs(programs: Mapping[str, ProgramOverrides], layers: Sequence[SettingsLayer]) -> Iterator[str]:
    """Yields a line for each program whose options contradict each other."""
    for name, overrides in programs.items():
        try:
            bounds_of("", overrides.num_replicas or 1, overrides.autoscaling_config)
        except DefinitionError as error:
            yield f"{_locate((PROGRAMS, name), layers)}{error}"


def _problem(name: str, errors: Sequence[Mapping[str, Any]]) -> str:
    path = _path_of(errors[0])
    if errors[0]["type"] == _UNKNOWN:
        return f"{name}: there is no such setting{suggestion(path)}"
    expected = " or ".join(dict.fromkeys(_expected(detail["msg"]) for detail in errors))
    return f"{name} is {_show(path, errors[0]['input'])}, expected {expected}"


def _locate(path: KeyPath, layers: Sequence[SettingsLayer]) -> str:
    """Returns the place and the key; of variables and flags, the place is the key."""
    place = place_of(path, layers)
    if place is None:
        return dotted(path) or "the settings"
    return f"{place}: {dotted(path)}" if ":" in place else place


def _show(path: KeyPath, value: Any) -> str:
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


_FLAGS = {"cells.num_cells": "--cells", "telemetry.logs.level": "--verbose", "workflows": "arguments"}
"""Flags that are not called like their settings."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and where they come from.

    Attributes:
        file: The configuration file, if any.
        layers: Where they come from, the weakest first.
    """

    settings: Settings
    file: Path | None
    layers: Sequence[SettingsLayer]

    def place(self, path: tuple[str | int, ...]) -> str:
        """Returns where the value at a path comes from."""
        return place_of(path, self.layers) or "default"


def read(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> LoadedSettings:
    """Returns the settings from flags, the environment, the file and defaults; the former win.

    Args:
        file: The configuration file; None: the one in the environment, or ``dyorc.toml`` in the current folder, if there is one.
        flags: Values from the command line by their settings, such as ``gateway.port``; None is none.

    Raises:
        ConfigurationError: If a name is unknown or a value cannot be used; names all of them and where they are.
    """
    path = find_file(file)
    layers = [environment_layer(), _flags_layer(flags or {})]
    if path is not None:
        layers.insert(0, file_layer(path))
        _settings_or_raise(check_file(layers[0]))
    return LoadedSettings(_settings_or_raise(check_layers(layers)), path, layers)


def check_layers(layers: Sequence[SettingsLayer]) -> Settings | list[str]:
    """Returns the settings of all layers together, or all that is wrong with them, each in a line."""
    return _check(lambda: Settings(**merge_layers(layers)), layers)


def check_file(layer: SettingsLayer) -> Settings | list[str]:
    """Does the same with a file alone. Texts are no numbers there, and ``true`` is not 1, as they are in the environment."""
    text = json.dumps(layer.values, default=str)
    return _check(lambda: Settings.model_validate_json(text, strict=True), [layer])


def _check(make: Callable[[], Settings], layers: Sequence[SettingsLayer]) -> Settings | list[str]:
    try:
        settings = make()
    except ValidationError as error:
        return problems_of(error, layers)
    return list(problems_of_programs(settings.programs, layers)) or settings


def _settings_or_raise(result: Settings | list[str]) -> Settings:
    if isinstance(result, Settings):
        return result
    raise ConfigurationError("\n".join(result))


def read_settings() -> Settings:
    """Returns the settings from the environment, the file and defaults.

    Raises:
        ConfigurationError: See `read`.
    """
    return read().settings


def _flags_layer(flags: Mapping[str, Any]) -> SettingsLayer:
    values: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None:
            continue
        *sections, last = name.split(".")
        table = values
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = value
    return SettingsLayer(values, lambda path: _flag(path, flags))


def _flag(path: tuple[str | int, ...], flags: Mapping[str, Any]) -> str:
    if path == ("in_process",):
        return "--in-process" if flags["in_process"] else "--on-ray"
    return _FLAGS.get(dotted(path)) or f"--{str(path[-1]).replace('_', '-')}"
