"""Imports the code of a bundle instead of the files on the disk.

In a replica, which runs one version of one program, modules have their own names. A server has several versions of a module side
by side: it puts each version's modules below a separate package, where their import statements find each other.
"""

import builtins
import contextlib
import importlib
import itertools
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from dyorc.authoring.bundles import Bundle, ModuleSource
from dyorc.authoring.loading import import_error, name_in, put_on_path
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.errors import DyOrcError
from dyorc.system.interrupts import is_interrupt

_PACKAGE = "_dyorc_version_"
_numbers = itertools.count(1)
_MAX_AHEAD = 64
_ahead: dict[ModuleSource, CodeType] = {}
"""Code that was compiled before it is imported. Only fork servers do that."""


HINT = (
    "modules that are found by text need names that are the same everywhere: put them into a separate package, "
    "or serve each folder by a separate server, or on Ray"
)


class RefuseAmbiguous(MetaPathFinder):
    """Refuses plain module names that mean different files in different folders: either file would be wrong for some target.

    Args:
        paths: The files, by module name.
    """

    def __init__(self, paths: Mapping[str, Sequence[str]]) -> None:
        self._paths = paths

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns None.

        Raises:
            ImportError: If the name is ambiguous.
        """
        if paths := self._paths.get(fullname):
            raise ImportError(f"{fullname!r} could be {' or '.join(paths)}, of several targets; {HINT}", name=fullname)
        return None


def new_package() -> str:
    """Returns the name of a package that no other bundle has."""
    return f"{_PACKAGE}{next(_numbers)}"


class BundleImporter(MetaPathFinder, InspectLoader):
    """Finds and runs the modules of a bundle.

    Args:
        package: The package that holds them; empty: they have their own names.
    """

    def __init__(self, bundle: Bundle, package: str = "") -> None:
        self._bundle = bundle
        self._package = package
        self._start = f"{package}." if package else ""
        self._folders = _folders_of(bundle)
        self._builtins = {**vars(builtins), "__import__": self._import} if package else None

    def load(self) -> Workflow | Program:
        """Imports the target.

        Raises:
            DefinitionError: If its module has no such workflow or program.
            ModuleImportError: If the module raises.
        """
        bundle = self._bundle
        place = bundle.target.rpartition(":")[0]
        put_on_path(place)
        module = self.import_main(bundle.main, place)
        try:
            return name_in(module, place, bundle.name)
        except DyOrcError:
            if self._package:
                self.unload()
            raise

    def import_main(self, name: str, place: str) -> ModuleType:
        """Imports the module of a file or module that the user has named.

        Raises:
            ModuleImportError: If it raises.
        """
        try:
            if self not in sys.meta_path:
                if self._package:
                    package = sys.modules[self._package] = ModuleType(self._package)
                    package.__path__ = []
                sys.meta_path.insert(0, self)
            return importlib.import_module(self._start + name)
        except BaseException as error:
            if self._package:
                self.unload()
            if isinstance(error, DyOrcError) or is_interrupt(error):
                raise
            raise import_error(Path(place).name if place.endswith(".py") else place, error) from error

    def unload(self) -> None:
        """Forgets the modules. Nothing happens if that was done, perhaps while they were being imported by another thread."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        for name in [name for name in list(sys.modules) if name == self._package or name.startswith(self._start)]:
            sys.modules.pop(name, None)

    def own_name(self, module: str) -> str:
        """Returns the name that an imported module has in the bundle."""
        return module.removeprefix(self._start)

    def module(self, name: str) -> ModuleType | None:
        """Returns a module by its name in the bundle, if it is imported."""
        return sys.modules.get(self._start + name)

    # Finder and loader

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns where a module is, if the bundle has it."""
        if not fullname.startswith(self._start):
            return None
        name = self.own_name(fullname)
        source = self._bundle.modules.get(name)
        if source is not None:
            spec = ModuleSpec(fullname, self, origin=source.path, is_package=source.is_package)
            spec.has_location = True
            if source.is_package:
                spec.submodule_search_locations = [str(Path(source.path).parent)]
            return spec
        if name in self._folders:  # a package without a file
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [self._folders[name]]
            return spec
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leaves that to Python."""
        return None

    def is_package(self, fullname: str) -> bool:
        """Returns whether a module is a package."""
        return self._bundle.modules[self.own_name(fullname)].is_package

    def get_source(self, fullname: str) -> str:
        """Returns a module's code."""
        return self._bundle.modules[self.own_name(fullname)].text

    def get_code(self, fullname: str) -> CodeType:
        """Compiles a module's code."""
        source = self._bundle.modules[self.own_name(fullname)]
        return _ahead.get(source) or _compile(source)

    def exec_module(self, module: ModuleType) -> None:
        """Runs a module's code."""
        code = self.get_code(module.__name__)
        if self._builtins is not None:
            module.__dict__["__builtins__"] = self._builtins  # functions that the module defines take `import` from here
        exec(code, module.__dict__)

    # Import statements below a package

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Imports as `__import__` does, but modules of the bundle from the bundle."""
        if level or not self._has(name):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if isinstance(fromlist, list):  # statements pass tuples: this is a pickle or C code, which looks up the plain name later
            raise ImportError(f"{name!r} is imported by its text, as pickles do, and has another name here; {HINT}", name=name)
        if fromlist:
            return builtins.__import__(self._start + name, globals, locals, fromlist, 0)
        importlib.import_module(self._start + name)
        return sys.modules[self._start + name.partition(".")[0]]

    def _has(self, name: str) -> bool:
        return name in self._bundle.modules or name in self._folders


def compile_ahead(bundle: Bundle) -> None:
    """Compiles the target's module, for importers in this process and in its forks. Code that cannot be compiled raises there."""
    source = bundle.modules.get(bundle.main)
    if source is None or source in _ahead:
        return
    if len(_ahead) >= _MAX_AHEAD:
        _ahead.clear()
    with contextlib.suppress(SyntaxError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the server has imported it, and shown them
        _ahead[source] = _compile(source)


def _compile(source: ModuleSource) -> CodeType:
    return compile(source.text, source.path, "exec", dont_inherit=True)


def _folders_of(bundle: Bundle) -> dict[str, str]:
    """Returns the packages without a file, and their folders."""
    folders: dict[str, str] = {}
    for name, source in bundle.modules.items():
        folder = Path(source.path).parent
        if source.is_package:
            folder = folder.parent
        while "." in name:
            name = name.rpartition(".")[0]
            if name not in bundle.modules:
                folders[name] = str(folder)
            folder = folder.parent
    return folders
