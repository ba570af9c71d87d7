"""The configuration file, ``dyorc.toml``: where it is, and what it sets."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dyorc.errors import ConfigurationError
from dyorc.settings.environment import CONFIG
from dyorc.settings.setting_names import SETTINGS
from dyorc.settings.settings_layers import SettingsLayer
from dyorc.system import toml_lines

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
        values = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"configuration file {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    lines = toml_lines.lines_of(text)
    return SettingsLayer(_resolved(values, path.resolve().parent), lambda key: f"{path}:{_line(key, lines)}")


def _line(key: toml_lines.Path, lines: Mapping[toml_lines.Path, int]) -> int:
    return next((lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines), 1)


def _resolved(values: Mapping[str, Any], folder: Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the values with absolute paths. Values that are not what is expected stay, to be refused later."""
    resolved: dict[str, Any] = {}
    for key, value in values.items():
        path = (*above, key)
        setting = SETTINGS.get(path)
        if isinstance(value, Mapping) and setting is not None and setting.is_section:
            resolved[key] = _resolved(value, folder, path)
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
