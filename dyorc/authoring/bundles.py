"""A snapshot of a target's code: all of the user's files that it may import.

A server keeps a bundle for each version that it serves. Replicas on any host import the bundle, even if the files have changed.
"""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path

from dyorc.authoring.user_files import folders_of, is_below

_MAX_FILES = 1000
_OURS = __name__.partition(".")[0]
_IMPORTERS = frozenset({"import_module", "run_path", "run_module", "spec_from_file_location"})
_RUNNERS = _IMPORTERS | {"__import__", "exec", "eval"}


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """One file.

    Attributes:
        path: Where it was read; data files may lie next to it.
    """

    path: str
    text: str
    is_package: bool = False


@dataclass(frozen=True, slots=True)
class Bundle:
    """A target and its code.

    Attributes:
        target: As `loading.absolute` returns it.
        main: The name of the target's module.
        modules: All files, by module name.
    """

    target: str
    main: str
    modules: Mapping[str, ModuleSource] = field(default_factory=dict[str, ModuleSource])

    @classmethod
    def of(cls, target: str, main: str, folder: str | None = None) -> "Bundle":
        """Reads the files of a target.

        Args:
            folder: Where to look for its neighbours, if its module is not imported yet.
        """
        folders = folders_of([target])
        modules: dict[str, ModuleSource] = {}
        waiting = [main]
        is_dynamic = False
        while waiting and len(modules) < _MAX_FILES:
            name = waiting.pop()
            if name != main and name.partition(".")[0] in sys.stdlib_module_names:
                continue  # Python's comes first, whatever files there are
            if name in modules or (source := _read(name, folders, folder)) is None:
                continue
            modules[name] = source
            code = scan_code(source.text, name, is_package=source.is_package)
            waiting += code.imports
            if code.is_dynamic and not is_dynamic:
                is_dynamic = True
                waiting += list(sys.modules)
        return cls(target, main, modules)

    @property
    def name(self) -> str:
        """The target's name in its module."""
        return self.target.rpartition(":")[2]

    @property
    def digest(self) -> str:
        """Equal for equal code."""
        digest = hashlib.sha256(repr((self.target, self.main)).encode())
        for name, source in sorted(self.modules.items()):
            digest.update(repr((name, source.is_package, source.text)).encode(errors="surrogatepass"))
        return digest.hexdigest()

    @property
    def short_digest(self) -> str:
        """The beginning of `digest`, as histories and lists of versions have it."""
        return shortened(self.digest)


def shortened(digest: str) -> str:
    """Returns the beginning of a digest of code: enough to tell the versions of a model apart."""
    return digest[:12]


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
    """Returns the file of a module that is imported, or would be; None if there is no such module or file. Imports nothing.

    Args:
        folder: Where to look first.
    """
    if (module := sys.modules.get(name)) is not None:
        file = getattr(module, "__file__", None)
        return str(Path(file).resolve()) if isinstance(file, str) else None
    path = None if folder is None else [folder, *sys.path]
    spec = None
    for number in range(1, name.count(".") + 2):
        try:
            spec = PathFinder.find_spec(".".join(name.split(".")[:number]), path)
        except (ImportError, ValueError, KeyError):  # a part of the name is not a package, or a missing one
            return None
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return None if spec is None or not spec.has_location or spec.origin is None else str(Path(spec.origin).resolve())


@dataclass(frozen=True, slots=True)
class CodeScan:
    """What a module's code may import and name.

    Attributes:
        imports: Names of modules that it may import; some may be attributes of modules.
        is_dynamic: Whether it may import other modules, too.
        texts: Its string constants.
    """

    imports: frozenset[str]
    is_dynamic: bool
    texts: frozenset[str]


@lru_cache(maxsize=4096)  # a server's targets have most modules in common
def scan_code(text: str, module: str, *, is_package: bool) -> CodeScan:
    """Reads the code of a module. Code that cannot be parsed imports nothing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return CodeScan(frozenset(), False, frozenset())
    package = module if is_package else module.rpartition(".")[0]
    nodes = list(ast.walk(tree))
    imports = frozenset(name for node in nodes for name in _imports_of(node, package))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}  # `net.eval()` is no `eval`
    texts = frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return CodeScan(imports, bool(names & _RUNNERS or attributes & _IMPORTERS), texts)


def _imports_of(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _with_parents(alias.name)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = package.split(".") if package else []
            parts = parts[: len(parts) - (node.level - 1)]
            base = ".".join([*parts, *([base] if base else [])])
        if base:
            yield from _with_parents(base)
        for alias in node.names:
            yield f"{base}.{alias.name}" if base else alias.name


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for number in range(1, len(parts) + 1):
        yield ".".join(parts[:number])
