"""Which modules a module's code imports, wherever in it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_IMPORTERS = frozenset({"import_module", "run_path", "run_module", "spec_from_file_location"})
_RUNNERS = _IMPORTERS | {"__import__", "exec", "eval"}


@dataclass(frozen=True, slots=True)
class Scan:
    """What a module's code says.

    Attributes:
        imports: Names of modules that it may import; some may be attributes of modules.
        is_dynamic: Whether it may import others, too.
        texts: Its constants that are strings.
    """

    imports: frozenset[str]
    is_dynamic: bool
    texts: frozenset[str]


@lru_cache(maxsize=4096)  # a server's targets have most modules in common
def scan(text: str, module: str, *, is_package: bool) -> Scan:
    """Reads the code of a module. Code that cannot be parsed imports nothing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return Scan(frozenset(), False, frozenset())
    package = module if is_package else module.rpartition(".")[0]
    nodes = list(ast.walk(tree))
    imports = frozenset(name for node in nodes for name in _imports_of(node, package))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}  # `net.eval()` is no `eval`
    texts = frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return Scan(imports, bool(names & _RUNNERS or attributes & _IMPORTERS), texts)


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
