"""The code of a target as it was at one time: all files of the user's that it may import.

A server keeps one for each version that it serves. Replicas import that, whatever has become of the files since, on any host.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path

from dyorc.authoring.import_scan import scan
from dyorc.authoring.user_files import folders_of, is_below

_MAX_FILES = 1000
_OURS = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """One file.

    Attributes:
        path: Where it was found; where its neighbours may lie that are no code.
    """

    path: str
    text: str
    is_package: bool = False


@dataclass(frozen=True, slots=True)
class Bundle:
    """A target and its code.

    Attributes:
        target: As `loading.absolute` returns it.
        main: The name of the module that it names.
        modules: All files, by the names of their modules.
    """

    target: str
    main: str
    modules: Mapping[str, ModuleSource] = field(default_factory=dict[str, ModuleSource])

    @classmethod
    def of(cls, target: str, main: str, folder: str | None = None) -> "Bundle":
        """Reads the files of a target.

        Args:
            folder: Where its neighbours are, if its module is not imported yet.
        """
        folders = folders_of([target])
        modules: dict[str, ModuleSource] = {}
        waiting = [main]
        is_dynamic = False
        while waiting and len(modules) < _MAX_FILES:
            name = waiting.pop()
            if name in modules or (source := _read(name, folders, folder)) is None:
                continue
            modules[name] = source
            found = scan(source.text, name, is_package=source.is_package)
            waiting += found.imports
            if found.is_dynamic and not is_dynamic:
                is_dynamic = True
                waiting += list(sys.modules)
        return cls(target, main, modules)

    @property
    def name(self) -> str:
        """What the target names in its module."""
        return self.target.rpartition(":")[2]

    @property
    def digest(self) -> str:
        """Equal for equal code."""
        digest = hashlib.sha256(repr((self.target, self.main)).encode())
        for name, source in sorted(self.modules.items()):
            digest.update(repr((name, source.is_package, source.text)).encode(errors="surrogatepass"))
        return digest.hexdigest()


def _read(name: str, folders: Iterable[Path], folder: str | None) -> ModuleSource | None:
    """Returns the source of a module, if it is the user's own."""
    first = name.partition(".")[0]
    top = path_of(first) if first in sys.modules else None
    if first == _OURS or (top is not None and not is_below(top, folders)):
        return None  # a library's
    path = path_of(name, folder)
    if path is None or not path.endswith(".py") or not is_below(path, folders):
        return None
    try:
        text = importlib.util.decode_source(Path(path).read_bytes())
    except (OSError, UnicodeDecodeError, SyntaxError):
        return None
    return ModuleSource(path, text, is_package=path.endswith("/__init__.py"))


def path_of(name: str, folder: str | None = None) -> str | None:
    """Returns the file of a module that is imported, or would be; None if it is no module, or has none. Imports nothing.

    Args:
        folder: Where it is looked for first.
    """
    if (module := sys.modules.get(name)) is not None:
        file = getattr(module, "__file__", None)
        return str(Path(file).resolve()) if isinstance(file, str) else None
    path = None if folder is None else [folder, *sys.path]
    spec = None
    for number in range(1, name.count(".") + 2):
        try:
            spec = PathFinder.find_spec(".".join(name.split(".")[:number]), path)
        except (ImportError, ValueError, KeyError):  # a part of it is no package, or a package that is not there
            return None
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return None if spec is None or not spec.has_location or spec.origin is None else str(Path(spec.origin).resolve())
