"""Checks a configuration file without starting anything."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from dyorc.authoring.loading import load
from dyorc.authoring.overrides import overridden
from dyorc.authoring.program import Program
from dyorc.config import Settings
from dyorc.configuration.file import file_layer
from dyorc.configuration.keys import PROGRAMS, SETTINGS, dotted, value_of
from dyorc.configuration.layers import Layer
from dyorc.configuration.reading import checked_file
from dyorc.errors import ConfigurationError, DyOrcError


def problems_in(path: Path, *, is_loading: bool = False) -> Sequence[str]:
    """Returns all that is wrong with a file: nothing is taken from elsewhere.

    Args:
        is_loading: Whether to import the workflows, too, and check the programs' names and options.
    """
    try:
        layer = file_layer(path)
    except ConfigurationError as error:
        return str(error).splitlines()
    settings = checked_file(layer)
    if not isinstance(settings, Settings):
        return settings
    return [*_missing_files(settings, layer), *(_problems_of_code(settings, layer) if is_loading else ())]


def _missing_files(settings: Settings, layer: Layer) -> Iterator[str]:
    for number, target in enumerate(settings.workflows):
        place = target.rpartition(":")[0]
        if place.endswith(".py") and not Path(place).is_file():
            yield f"{layer.place(('workflows', number))}: there is no file {place}"
    for path, one in SETTINGS.items():
        if one.is_file and layer.has(path):
            value = value_of(settings, path)
            if value and not Path(value).exists():
                yield f"{layer.place(path)}: {dotted(path)}: there is no file {value}"


def _problems_of_code(settings: Settings, layer: Layer) -> Iterator[str]:
    programs: list[Program] = []
    for number, target in enumerate(settings.workflows):
        try:
            found = load(target)
        except DyOrcError as error:
            yield f"{layer.place(('workflows', number))}: {error}"
        else:
            programs += (found,) if isinstance(found, Program) else found.programs
    for name, one in settings.programs.items():
        try:
            with overridden(programs, {name: one.changes}):
                pass
        except DyOrcError as error:
            yield f"{layer.place((PROGRAMS, name))}: {error}"
