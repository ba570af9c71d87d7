"""Loads an example's modules as its server does: its folder is first on the path."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def load_example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns an example's `app.py`, under a name of its own since others have one. Its folder is on the path for a test."""
    monkeypatch.syspath_prepend(EXAMPLES / name)
    spec = importlib.util.spec_from_file_location(f"{name}_app", EXAMPLES / name / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_module(example: str, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns another module of an example."""
    monkeypatch.syspath_prepend(EXAMPLES / example)
    return importlib.import_module(name)
