"""Decides when two programs are certainly the same, so that versions of a workflow can share one.

They are the same if nothing on which a program may depend differs: its code and all of the user's code that it imports, the
arguments of its class, its options, plain values in its modules, and the files that its code names. In doubt, they are different.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from dyorc.authoring.bundles import Bundle, scan_code
from dyorc.authoring.program import Program

_PLAIN = (str, int, float, bool, bytes, complex, type(None), Path)
_MAX_NAME = 400
_MAX_FILES = 2000
"""A folder with more files is not searched: its content counts as different each time."""


@dataclass(frozen=True, slots=True)
class _ImportedCode:
    """Modules of a bundle with all that they may import.

    Attributes:
        digest: Of their texts and plain values.
        stamps: Of the files that their texts name.
    """

    digest: str
    stamps: frozenset[tuple[str, int, int]]


class Fingerprints:
    """The fingerprints of the programs of one bundle, which has been imported. A module is read when its first program is looked
    at: make another object once it may have changed.

    Args:
        module_of: Returns a loaded module of the bundle by its name there.
        own_name: Returns a module's name in the bundle.
    """

    def __init__(self, bundle: Bundle, module_of: Callable[[str], ModuleType | None], own_name: Callable[[str], str]) -> None:
        self._bundle = bundle
        self._module_of = module_of
        self._own_name = own_name
        self._scans = {
            name: scan_code(source.text, name, is_package=source.is_package) for name, source in bundle.modules.items()
        }
        self._code: dict[tuple[str, ...], _ImportedCode] = {}

    def of(self, program: Program, name: str) -> str | None:
        """Returns a digest that equal programs have in common; None if no digest covers all that the program may depend on.

        Args:
            name: The program's name in its code.
        """
        definition = program.definition
        if definition is None:
            return None
        qualified, own = definition.target.__qualname__, self._module_of_code(definition.target)
        is_plain = _is_plain(definition.args) and _is_plain(dict(definition.kwargs))
        if own is None or own not in self._bundle.modules or not is_plain or _is_made_by_a_function(definition.target):
            return None
        options = {option.name: getattr(program.options, option.name) for option in fields(program.options)}
        cost = options.pop("cost")
        if cost is not None and (not isinstance(cost, FunctionType) or cost.__closure__ or not _is_plain(_defaults_of(cost))):
            return None
        cost_module = own if cost is None else self._module_of_code(cost)
        if cost_module is None:
            return None
        code = self._code_of(own, cost_module)
        parts: list[Any] = [name, own, qualified, definition.args, sorted(definition.kwargs.items()), sorted(options.items())]
        if cost is not None:
            parts.append((cost_module, _code_text(cost.__code__), _defaults_of(cost)))
        parts.append(code.digest)
        parts.append(_plain_values(definition.target) if isinstance(definition.target, type) else [])
        parts.append(sorted(code.stamps | self._stamps_of(_texts_in(definition.args, definition.kwargs))))
        return _digest(parts)

    def _module_of_code(self, target: Callable[..., Any]) -> str | None:
        """Returns the module of a function or class, as the bundle names it; None of what `exec` made without a ``__name__``."""
        module: Any = target.__module__
        return self._own_name(module) if isinstance(module, str) else None

    def _code_of(self, *modules: str) -> "_ImportedCode":
        """Returns what programs of these modules have in common. One file may have hundreds of programs, and is read once."""
        known = self._code.get(modules)
        if known is None:
            names = sorted(frozenset[str]().union(*map(self._closure, modules)))
            digest = _digest([(name, self._bundle.modules[name].text, self._values(name)) for name in names])
            stamps = self._stamps_of(text for name in names for text in self._scans[name].texts)
            known = self._code[modules] = _ImportedCode(digest, stamps)
        return known

    def _stamps_of(self, texts: Iterable[str]) -> frozenset[tuple[str, int, int]]:
        named = frozenset(texts)
        if not named:
            return frozenset()
        paths = {source.path for source in self._bundle.modules.values()}
        folders = {Path.cwd(), *(Path(path).parent for path in paths)}
        return frozenset(_stamps(named, folders, paths))

    def _closure(self, module: str) -> frozenset[str]:
        """Returns the modules of the bundle that one of them may import, itself included."""
        reached: set[str] = set()
        waiting = [module]
        while waiting:
            name = waiting.pop()
            if name in reached or name not in self._scans:
                continue
            reached.add(name)
            code = self._scans[name]
            if code.is_dynamic:
                return frozenset(self._scans)
            waiting += code.imports
            waiting += [name.rpartition(".")[0]] if "." in name else []
        return frozenset(reached)

    def _values(self, name: str) -> list[tuple[str, str]]:
        """Returns the plain values of a module, which other code may have set."""
        module = self._module_of(name)
        if module is None:
            return []
        return _plain_values(module)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()


def _plain_values(owner: ModuleType | type) -> list[tuple[str, str]]:
    own = [(key, value) for key, value in vars(owner).items() if not key.startswith("__")]
    return sorted((key, repr(value)) for key, value in own if _is_plain(value))


def _is_made_by_a_function(target: Callable[..., Any]) -> bool:
    """Returns whether a program's code depends on variables of a function that made it."""
    names = target.__qualname__, getattr(getattr(target, "__code__", None), "co_qualname", "")
    return any("<locals>" in name for name in names) or getattr(target, "__closure__", None) is not None


def _defaults_of(function: FunctionType) -> tuple[Any, ...]:
    return function.__defaults__ or (), function.__kwdefaults__ or {}


def _code_text(code: CodeType) -> str:
    """Returns what code does, as text; where it is written makes no difference."""
    constants = [_code_text(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return repr((code.co_code.hex(), constants, code.co_names, code.co_varnames))


def _is_plain(value: Any) -> bool:
    """Returns whether a value's text says all about it."""
    if isinstance(value, tuple | list):
        return type(value) in (tuple, list) and all(map(_is_plain, value))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, dict):
        return type(value) is dict and all(_is_plain(part) for item in value.items() for part in item)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(value, _PLAIN)


def _texts_in(*values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str | Path):
            yield str(value)
        elif isinstance(value, dict):
            yield from _texts_in(*value.values())
        elif isinstance(value, tuple | list):
            yield from _texts_in(*value)


def _stamps(texts: Iterable[str], folders: Iterable[Path], code: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """Yields size and time of each file that a text names, and of each file in a folder that it names."""
    known, holding = set(code), list(folders)
    for path in _find_named(texts, holding):
        try:
            if path.is_file():
                if str(path.resolve()) not in known:
                    yield _stamp(path)
            elif path.is_dir():
                whole = path.resolve()
                if not any(other.is_relative_to(whole) for other in holding):
                    yield from _stamps_in(path)
        except OSError:
            continue


def _find_named(texts: Iterable[str], folders: Iterable[Path]) -> set[Path]:
    """Returns the paths that texts may name, from a root or from one of the folders; most do not exist.

    Programs that may import anything have thousands of texts and hundreds of folders, so each folder is read once.
    """
    paths: set[Path] = set()
    names = {folder: _names_in(folder) for folder in folders}
    for text in texts:
        if not 0 < len(text) <= _MAX_NAME or "\0" in text or "\n" in text or not text.strip("./ "):
            continue
        path = Path(os.path.expanduser(text))
        if path.is_absolute():
            paths.add(path)
        else:
            paths.update(folder / path for folder, inside in names.items() if path.parts[0] in inside)
    return paths


def _names_in(folder: Path) -> frozenset[str]:
    try:
        return frozenset((*os.listdir(folder), ".."))
    except OSError:
        return frozenset()


def _stamps_in(folder: Path) -> Iterator[tuple[str, int, int]]:
    for number, path in enumerate(folder.rglob("*")):
        if number == _MAX_FILES:
            yield str(folder), id(path), os.getpid()  # nothing equals it
            return
        if path.is_file() and "__pycache__" not in path.parts:
            yield _stamp(path)


def _stamp(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns
