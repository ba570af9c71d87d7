"""Checks a configuration file without starting anything."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dyorc.authoring.loading import import_place, name_in, parts_of
from dyorc.authoring.overrides import override_programs
from dyorc.authoring.program import Program
from dyorc.authoring.targets import ImportedPlace, import_places
from dyorc.config import Settings
from dyorc.errors import ConfigurationError, DyOrcError
from dyorc.settings.setting_names import PROGRAMS, SETTINGS, dotted, value_of
from dyorc.settings.settings_reader import check_file
from dyorc.settings.settings_sources import SettingsLayer, file_layer


def problems_in(path: Path, *, is_loading: bool = False) -> Sequence[str]:
    """Returns all that is wrong with a file: nothing is taken from elsewhere.

    Args:
        is_loading: Whether to import the workflows, too, and check the programs' names and options.
    """
    try:
        layer = file_layer(path)
    except ConfigurationError as error:
        return str(error).splitlines()
    settings = check_file(layer)
    if not isinstance(settings, Settings):
        return settings
    return [*_missing_files(settings, layer), *(_problems_of_code(settings, layer) if is_loading else ())]


def _missing_files(settings: Settings, layer: SettingsLayer) -> Iterator[str]:
    for number, target in enumerate(settings.workflows):
        place = target.rpartition(":")[0]
        if place.endswith(".py") and not Path(place).is_file():
            yield f"{layer.place(('workflows', number))}: there is no file {place}"
    for path, setting in SETTINGS.items():
        if setting.is_file and layer.has(path):
            value = value_of(settings, path)
            if value and not Path(value).exists():
                yield f"{layer.place(path)}: {dotted(path)}: there is no file {value}"


def _problems_of_code(settings: Settings, layer: SettingsLayer) -> Iterator[str]:
    programs: list[Program] = []
    imported: Mapping[str, ImportedPlace] = {}
    with contextlib.suppress(DyOrcError):  # what cannot be imported is named below
        imported = import_places([parts_of(target)[0] for target in settings.workflows])
    for number, target in enumerate(settings.workflows):
        try:
            place, name = parts_of(target)
            module = imported[place].module if place in imported else import_place(place)
            target_object = name_in(module, place, name)
        except DyOrcError as error:
            yield f"{layer.place(('workflows', number))}: {error}"
        else:
            programs += (target_object,) if isinstance(target_object, Program) else target_object.programs
    for name, overrides in settings.programs.items():
        try:
            with override_programs(programs, {name: overrides.changes}):
                pass
        except DyOrcError as error:
            yield f"{layer.place((PROGRAMS, name))}: {error}"
