"""Imports the places of several targets, so that each finds its own neighbours.

`one/app.py` and `two/app.py` may both import `helper`, and Python has one module of that name. So code that would meet a
neighbour of that name from another folder is imported below a package of its own, as a deployed version is; all else by its own
name.
Replicas run one target each, from its bundle, and need none of that.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from dyorc.authoring.bundle_imports import BundleImporter, RefuseAmbiguous, new_package
from dyorc.authoring.bundles import Bundle, ModuleSource
from dyorc.authoring.import_scan import scan
from dyorc.authoring.loading import import_place, put_on_path


@dataclass(frozen=True, slots=True)
class ImportedPlace:
    """A file or module that is imported.

    Attributes:
        module: The module.
        bundle: The user's code that it may import; its target names nothing in the place.
        importer: Holds the modules; None: they have their own names.
    """

    module: ModuleType
    bundle: Bundle
    importer: BundleImporter | None = None


def import_places(places: Sequence[str]) -> Mapping[str, ImportedPlace]:
    """Imports files and modules; the same one only once.

    Args:
        places: As `loading.parts_of` returns them.

    Raises:
        DefinitionError: If there is no such file or module.
        ModuleImportError: If one raises.
    """
    for place in places:
        put_on_path(place)  # before one of them changes the current folder
    imported: dict[str, ImportedPlace] = {}
    folders, ambiguous = _apart(places)
    if ambiguous:
        sys.meta_path.insert(0, RefuseAmbiguous(ambiguous))
    for bundles in folders:
        imported |= _import_below_a_package(bundles)
    for place in places:
        if place not in imported:
            module = import_place(place)
            imported[place] = ImportedPlace(module, Bundle.of(f"{place}:", module.__name__))
    return imported


def _import_below_a_package(bundles: Mapping[str, Bundle]) -> dict[str, ImportedPlace]:
    """Imports places of one folder, which share their modules."""
    modules: dict[str, ModuleSource] = {}
    for bundle in bundles.values():
        modules |= bundle.modules
    first = next(iter(bundles.values()))
    importer = BundleImporter(Bundle(first.target, first.main, modules), new_package())
    return {place: ImportedPlace(importer.import_main(one.main, place), one, importer) for place, one in bundles.items()}


def _apart(places: Iterable[str]) -> tuple[Sequence[Mapping[str, Bundle]], Mapping[str, Sequence[str]]]:
    """Returns the code of places that would meet a neighbour of another folder, by folder, and the files of such neighbours."""
    folders = {place: _folder_of(place) for place in dict.fromkeys(places) if place.endswith(".py") and Path(place).is_file()}
    if len(set(folders.values())) < 2:
        return (), {}
    bundles = {place: Bundle.of(f"{place}:", Path(place).stem, folder) for place, folder in folders.items()}
    neighbours = {place: _neighbours(bundle, folders[place]) for place, bundle in bundles.items()}
    paths: defaultdict[str, set[str]] = defaultdict(set)
    for found in neighbours.values():
        for name, path in found.items():
            paths[name].add(path)
    ambiguous = {name: sorted(found) for name, found in paths.items() if len(found) > 1}
    meeting = {folders[place] for place in bundles if ambiguous.keys() & neighbours[place].keys()}
    return [{place: bundles[place] for place in bundles if folders[place] == folder} for folder in sorted(meeting)], ambiguous


def _neighbours(bundle: Bundle, folder: str) -> dict[str, str]:
    """Returns the files of modules that others of a bundle import: all but the target's own, unless one of them imports that."""
    scans = [scan(source.text, name, is_package=source.is_package) for name, source in bundle.modules.items()]
    imports = frozenset[str]().union(*(found.imports for found in scans))
    by_text = frozenset[str]().union(*(found.texts for found in scans if found.is_dynamic))
    found = {name: os.path.join(folder, f"{name}.py") for name in by_text if name.isidentifier()}
    found = {name: path for name, path in found.items() if os.path.isfile(path)}
    return found | {name: one.path for name, one in bundle.modules.items() if name != bundle.main or name in imports}


def _folder_of(place: str) -> str:
    return os.path.dirname(os.path.realpath(place))
