"""Shows the settings in force, and where each comes from."""

from collections.abc import Iterator
from typing import Any

from dyorc.settings.setting_names import PROGRAMS, SETTINGS, dotted, value_of
from dyorc.settings.settings_reader import LoadedSettings
from dyorc.settings.toml_text import key_text, value_text

_MAX_COLUMN = 60


def print_in_force(reading: LoadedSettings, *, is_all: bool = True) -> None:
    """Prints a line for each setting, as TOML with dotted keys; secrets are not shown.

    Args:
        is_all: Whether to print defaults as well.
    """
    lines = [(text, place) for text, place in _lines(reading) if is_all or place != "default"]
    column = min(max((len(text) for text, _ in lines), default=0), _MAX_COLUMN)
    for text, place in lines:
        print(f"{text:{column}}  # {place}")


def _lines(reading: LoadedSettings) -> Iterator[tuple[str, str]]:
    for path, setting in SETTINGS.items():
        if setting.is_section or path == (PROGRAMS,):
            continue
        yield _text(dotted(path), value_of(reading.settings, path), is_secret=setting.is_secret), reading.place(path)
    for name, overrides in reading.settings.programs.items():
        for key, value in overrides.changes.items():
            yield _text(f"{PROGRAMS}.{key_text(name)}.{key}", value), reading.place((PROGRAMS, name, key))


def _text(key: str, value: Any, *, is_secret: bool = False) -> str:
    if value is None:
        return f"# {key} ="
    return f"{key} = {value_text('***' if is_secret and value else value)}"
