"""Imports the places of several targets, so that each finds its own neighbours.

`one/app.py` and `two/app.py` may both import `helper`, and Python has only one module of that name. Code that could get the
neighbour of another folder is imported below a separate package, as a deployed version is; all other code under its own name.
Replicas do not need this: each runs one target from its bundle.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from dyorc.authoring.bundle_imports import BundleImporter, RefuseAmbiguous, new_package
from dyorc.authoring.bundles import Bundle, ModuleSource, path_of, scan_code
from dyorc.authoring.loading import import_place, parts_of, put_on_path

NOTHING_READ: Mapping[str, Bundle] = {}


@dataclass(frozen=True, slots=True)
class ImportedPlace:
    """A file or module that is imported.

    Attributes:
        module: The module.
        bundle: The user's code that it may import; its target ends with the colon, without a name.
        importer: Holds the modules; None if they have their own names.
    """

    module: ModuleType
    bundle: Bundle
    importer: BundleImporter | None = None


def import_places(places: Sequence[str], read: Mapping[str, Bundle] = NOTHING_READ) -> Mapping[str, ImportedPlace]:
    """Imports files and modules, each only once.

    Args:
        places: As `loading.parts_of` returns them.
        read: The code of some of them, by place, as it was read before: it is imported below a separate package, whatever the
            files say by now.

    Raises:
        DefinitionError: If there is no such file or module.
        ModuleImportError: If one raises.
    """
    from_disk = [place for place in places if place not in read]
    apart, ambiguous = _apart(from_disk)
    for place in from_disk:
        if not any(place in bundles for bundles in apart.values()):
            put_on_path(place)  # before user code changes the current folder
    _put_last(apart)
    if ambiguous:
        sys.meta_path.insert(0, RefuseAmbiguous(ambiguous))
    imported: dict[str, ImportedPlace] = {}
    for bundles in (*apart.values(), *_by_folder({place: read[place] for place in places if place in read}).values()):
        imported |= _import_below_a_package(bundles)
    for place in places:
        if place not in imported:
            module = import_place(place)
            imported[place] = ImportedPlace(module, Bundle.of(f"{place}:", module.__name__))
    return imported


def code_on_disk(target: str, main: str) -> Bundle:
    """Returns the code of a target as it is on the disk. Imports nothing.

    Args:
        main: The name of the target's module.
    """
    return Bundle.of(target, main, _folder_of(parts_of(target)[0]))


def _by_folder(bundles: Mapping[str, Bundle]) -> Mapping[str, Mapping[str, Bundle]]:
    """Returns the code of places by their folders, with a target as `ImportedPlace` has it."""
    folders = {_folder_of(place) for place in bundles}
    return {
        folder: {place: replace(code, target=f"{place}:") for place, code in bundles.items() if _folder_of(place) == folder}
        for folder in sorted(folders)
    }


def _put_last(folders: Iterable[str]) -> None:
    """Moves folders to the end of the path: modules imported by text are found there, unless a library has the name."""
    for folder in folders:
        sys.path[:] = [*(path for path in sys.path if os.path.realpath(path) != folder), folder]


def _import_below_a_package(bundles: Mapping[str, Bundle]) -> dict[str, ImportedPlace]:
    """Imports places of one folder, which share their modules."""
    modules: dict[str, ModuleSource] = {}
    for bundle in bundles.values():
        modules |= bundle.modules
    first = next(iter(bundles.values()))
    importer = BundleImporter(Bundle(first.target, first.main, modules), new_package())
    return {place: ImportedPlace(importer.import_main(code.main, place), code, importer) for place, code in bundles.items()}


def _apart(places: Iterable[str]) -> tuple[Mapping[str, Mapping[str, Bundle]], Mapping[str, Sequence[str]]]:
    """Returns the code of places that clash with other folders, by folder; and the module names that mean different files in
    different folders, with these files."""
    folders = {place: _folder_of(place) for place in dict.fromkeys(places) if not place.endswith(".py") or Path(place).is_file()}
    if len(set(folders.values())) < 2:
        return {}, {}
    bundles = {place: Bundle.of(f"{place}:", _main_of(place), folder) for place, folder in folders.items()}
    neighbours = {place: _neighbours(bundle, folders[place]) for place, bundle in bundles.items()}
    files: defaultdict[str, set[str]] = defaultdict(set)
    for paths in neighbours.values():
        for name, path in paths.items():
            files[name].add(path)
    ambiguous = {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}
    clashing = {
        folder
        for place, folder in folders.items()
        if any(_is_in(folder, path) for name, path in neighbours[place].items() if name in ambiguous)
    }
    by_folder = {folder: {place: bundles[place] for place in bundles if folders[place] == folder} for folder in sorted(clashing)}
    return by_folder, {
        name: paths
        for name, paths in ambiguous.items()
        if all(any(_is_in(folder, path) for folder in folders.values()) for path in paths)
    }


def _neighbours(bundle: Bundle, folder: str) -> dict[str, str]:
    """Returns the files of the modules that a bundle's code imports, libraries included, as if there were no other target. The
    target's own module counts only if another module imports it."""
    scans = [scan_code(source.text, name, is_package=source.is_package) for name, source in bundle.modules.items()]
    imports = frozenset[str]().union(*(code.imports for code in scans))
    texts = frozenset[str]().union(*(code.texts for code in scans if code.is_dynamic))
    tops = {name.partition(".")[0] for name in imports} - sys.stdlib_module_names
    imported = {name: path for name in tops if (path := path_of(name, folder)) is not None}
    named = {name: os.path.join(folder, f"{name}.py") for name in texts if name.isidentifier()}
    named = {name: path for name, path in named.items() if os.path.isfile(path)}
    own = {name: source.path for name, source in bundle.modules.items() if name != bundle.main or name in imports}
    return imported | named | own


def _is_in(folder: str, path: str) -> bool:
    return path.startswith(folder + os.sep)


def _main_of(place: str) -> str:
    return Path(place).stem if place.endswith(".py") else place


def _folder_of(place: str) -> str:
    return os.path.dirname(os.path.realpath(place)) if place.endswith(".py") else os.path.realpath(os.getcwd())
