"""Finds a user's workflows and programs: ``path/to/file.py:name`` or ``package.module:name``."""

import importlib
import importlib.util
import os
import sys
import zlib
from pathlib import Path
from types import ModuleType

from dyorc.authoring.import_errors import import_error
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.errors import DefinitionError, DyOrcError


def load(target: str) -> Workflow | Program:
    """Imports `target`. A file's folder is put on the path, so that it can import its neighbours.

    Raises:
        DefinitionError: If there is no such file, module or name, or it is neither workflow nor program; lists what exists.
        ModuleImportError: If the module raises; shows the user's lines that led there, and none of ours.
    """
    place, name = parts_of(target)
    return name_in(import_place(place), place, name)


def parts_of(target: str) -> tuple[str, str]:
    """Returns a target's file or module, and the name in it.

    Raises:
        DefinitionError: If one of them is missing.
    """
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise DefinitionError(f"{target!r} names nothing to serve; expected PATH:WORKFLOW, like app.py:classify")
    return place, name


def import_place(place: str) -> ModuleType:
    """Imports a file or a module. Raises what `load` raises."""
    return _import_file(Path(place)) if place.endswith(".py") else _import_module(place)


def name_in(module: ModuleType, place: str, name: str) -> Workflow | Program:
    """Returns a workflow or program of a module, which was named as `place`.

    Raises:
        DefinitionError: If there is none of this name; lists what exists.
    """
    found = getattr(module, name, None)
    if not isinstance(found, Workflow | Program):
        known = sorted(key for key, value in vars(module).items() if isinstance(value, Workflow | Program))
        raise DefinitionError(f"{place} has no workflow or program {name!r}; it has {known}")
    return found


def programs_of(found: Workflow | Program) -> tuple[Program, ...]:
    """Returns the programs that are needed to serve a workflow or a program."""
    return (found,) if isinstance(found, Program) else found.programs


def program_in(found: Workflow | Program, target: str, name: str) -> Program:
    """Returns the program called `name` among those that `target` needs, with the options that its code declares.

    Raises:
        DefinitionError: If there is none.
    """
    programs = programs_of(found)
    for program in programs:
        if program.name == name:
            return program
    raise DefinitionError(f"{target} needs no program {name!r}; it needs {[program.name for program in programs]}")


def put_on_path(place: str) -> None:
    """Lets a file import its neighbours, and a module those of the current folder, as `python -m` does."""
    folder = str(Path(place).resolve().parent) if place.endswith(".py") else os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)


def absolute(target: str) -> str:
    """Returns the same target, valid from any working directory."""
    place, _, name = target.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else target


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise DefinitionError(f"there is no file {path}")
    name = path.stem
    if _file_of(name) not in (None, str(path)):
        name = f"{name}_{zlib.crc32(str(path).encode()):08x}"  # another module has the plain name
    if name in sys.modules:
        return sys.modules[name]
    put_on_path(str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{path} cannot be imported")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, DyOrcError) or not isinstance(error, Exception):
            raise
        raise import_error(path.name, error) from error
    return module


def _file_of(name: str) -> str | None:
    """Returns the file of the loaded module with this name; None if there is none."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None) or "built in"
    return "standard library" if name in sys.stdlib_module_names else None


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise DefinitionError(
            f"{name!r} is neither a file, which ends in .py, nor the name of a module; expected path/app.py:flow or pkg.app:flow"
        )
    put_on_path(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise DefinitionError(f"there is no module {name!r}; a file is named by its path, like app.py:classify") from error
        raise import_error(name, error) from error
    except DyOrcError:
        raise
    except Exception as error:
        raise import_error(name, error) from error
