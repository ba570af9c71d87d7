"""Public classes and files of `dyorc/` have names of their own, and locals are named for the thing that they hold.

What is left of the old names is listed here. The lists and counts may only shrink: a test fails when one is too short, and also
when it is too long.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_VAGUE = frozenset({"found", "told", "one", "what"})

_REPEATED_CLASSES: frozenset[str] = frozenset(
    """
    Finding ModelMetadata OngoingBatches Process TensorMetadata
    """.split()  # noqa: SIM905
)
_REPEATED_FILES: frozenset[str] = frozenset(
    """
    counts.py diagnosis.py processors.py
    """.split()  # noqa: SIM905
)
_VAGUE_LOCALS: dict[str, int] = {
    "benchmarks": 112,
    "dyorc": 1,
    "dyorc/cells": 1,
    "dyorc/cli": 1,
    "dyorc/client": 1,
    "dyorc/engine": 2,
    "dyorc/planner": 4,
    "dyorc/replica": 1,
    "loadgen": 3,
}


def _sources(folder: str) -> Iterator[Path]:
    return (path for path in sorted((_ROOT / folder).rglob("*.py")) if not path.stem.endswith(("_pb2", "_pb2_grpc")))


def _has_name_by_convention(path: Path) -> bool:
    """Returns whether other files may have this file's name: a package's, a command's, or a planner's plan."""
    parts = path.relative_to(_ROOT / "dyorc").parts
    return path.name in ("__init__.py", "__main__.py", "plan.py") or parts[0] == "cli"


def _repeated(names: Iterator[str]) -> set[str]:
    return {name for name, number in Counter(names).items() if number > 1}


def _public_classes(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def _vague_locals(path: Path) -> int:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    stored = sum(isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _VAGUE for node in nodes)
    return stored + sum(isinstance(node, ast.arg) and node.arg in _VAGUE for node in nodes)


def test_public_classes_have_names_of_their_own() -> None:
    assert _repeated(name for path in _sources("dyorc") for name in _public_classes(path)) == _REPEATED_CLASSES


def test_files_have_names_of_their_own() -> None:
    assert _repeated(path.name for path in _sources("dyorc") if not _has_name_by_convention(path)) == _REPEATED_FILES


def test_locals_are_named_for_what_they_hold() -> None:
    packages = [f"dyorc/{path.name}" for path in (_ROOT / "dyorc").iterdir() if path.is_dir()]
    numbers = {folder: sum(map(_vague_locals, _sources(folder))) for folder in [*packages, "loadgen", "benchmarks"]}
    numbers["dyorc"] = sum(map(_vague_locals, (_ROOT / "dyorc").glob("*.py")))
    assert {folder: number for folder, number in numbers.items() if number} == _VAGUE_LOCALS
