"""Reads all settings. The command line calls it, once."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dyorc.config import Settings
from dyorc.errors import ConfigurationError
from dyorc.settings.problems import problems_of, problems_of_programs
from dyorc.settings.setting_names import dotted
from dyorc.settings.settings_sources import SettingsLayer, environment_layer, file_layer, find_file, merge_layers, place_of

_FLAGS = {"cells.num_cells": "--cells", "telemetry.logs.level": "--verbose", "workflows": "arguments"}
"""Flags that are not called like their settings."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and where they come from.

    Attributes:
        file: The configuration file; None if there is none.
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
    return _checked(lambda: Settings(**merge_layers(layers)), layers)


def check_file(layer: SettingsLayer) -> Settings | list[str]:
    """Does the same with a file alone. Texts are no numbers there, and ``true`` is not 1, as they are in the environment."""
    text = json.dumps(layer.values, default=str)
    return _checked(lambda: Settings.model_validate_json(text, strict=True), [layer])


def _checked(make: Callable[[], Settings], layers: Sequence[SettingsLayer]) -> Settings | list[str]:
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
