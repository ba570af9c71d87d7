"""Finds a user's workflows and programs: ``path/to/file.py:name`` or ``package.module:name``."""

import importlib
import importlib.util
import os
import sys
import traceback
import zlib
from pathlib import Path
from types import ModuleType

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.errors import DefinitionError, DyOrcError, ModuleImportError, text_of
from dyorc.system.extras import command_for, extra_of
from dyorc.system.interrupts import is_interrupt
from dyorc.system.module_path import put_first

_OURS = frozenset(str(Path(__file__).with_name(name)) for name in ("loading.py", "bundle_imports.py"))

_NO_PACKAGE = "attempted relative import with no known parent package"


def load(target: str) -> Workflow | Program:
    """Imports `target`. Puts a file's folder on the path, so that the file can import its neighbours.

    Raises:
        DefinitionError: If there is no such file, module or name, or it is neither workflow nor program; lists what exists.
        ModuleImportError: If the module raises; shows the user's lines that led there, without ours.
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
        DefinitionError: If the module has no such name; lists what exists.
    """
    target = getattr(module, name, None)
    if not isinstance(target, Workflow | Program):
        known = sorted(key for key, value in vars(module).items() if isinstance(value, Workflow | Program))
        raise DefinitionError(f"{place} has no workflow or program {name!r}; it has {known}")
    return target


def programs_of(target: Workflow | Program) -> tuple[Program, ...]:
    """Returns the programs that are needed to serve a workflow or a program."""
    return (target,) if isinstance(target, Program) else target.programs


def program_in(loaded: Workflow | Program, target: str, name: str) -> Program:
    """Returns the program called `name` among the programs that `target` needs, with the options that its code declares.

    Args:
        loaded: The workflow or program that the target names.

    Raises:
        DefinitionError: If the target needs no such program.
    """
    programs = programs_of(loaded)
    for program in programs:
        if program.name == name:
            return program
    raise DefinitionError(f"{target} needs no program {name!r}; it needs {[program.name for program in programs]}")


def put_on_path(place: str) -> None:
    """Lets a file import its neighbours, and a module those of the current folder, as `python -m` does."""
    folder = str(Path(place).resolve().parent) if place.endswith(".py") else os.getcwd()
    put_first(folder)


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
        if isinstance(error, DyOrcError) or is_interrupt(error):
            raise
        raise import_error(path.name, error) from error
    return module


def _file_of(name: str) -> str | None:
    """Returns the file of the module loaded under this name; None if the name is free."""
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
    except BaseException as error:
        if isinstance(error, DyOrcError) or is_interrupt(error):
            raise
        raise import_error(name, error) from error


def import_error(module: str, error: BaseException) -> ModuleImportError:
    """Returns the error to raise in place of the one that a module raised. It shows the lines of the module's author, without our
    frames and those of the import system.

    Args:
        module: The imported module, as a person would name it.
    """
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list([frame for frame in shown.stack if _is_of_users(frame)])
    lines = shown.format() if shown.stack else shown.format_exception_only()
    kind, text = type(error).__name__, _text_of(error)
    text = f"{module} cannot be imported: {kind}{text and f': {text}'}{_place_of(error, shown.stack)}"
    if module.endswith(".py") and _NO_PACKAGE in str(error):
        text += f"; a file named by its path is in no package: name its module, like pkg.{module.removesuffix('.py')}:flow"
    if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name or "")) is not None:
        text += f"; {command_for(extra)}"
    return ModuleImportError(text, "".join(lines))


def _is_of_users(frame: traceback.FrameSummary) -> bool:
    name = frame.filename
    return name not in _OURS and not name.startswith("<frozen importlib") and not name.endswith("/importlib/__init__.py")


def _text_of(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else text_of(error)


def _place_of(error: BaseException, stack: traceback.StackSummary) -> str:
    """Returns the last line of the user's code, or of what it called."""
    if isinstance(error, SyntaxError):
        return f" ({Path(error.filename or '?').name}, line {error.lineno})"
    return f" ({Path(stack[-1].filename).name}, line {stack[-1].lineno})" if stack else ""
