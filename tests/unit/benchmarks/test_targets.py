"""Every module that the Makefile runs exists."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

_MAKEFILE = Path(__file__).parents[3] / "Makefile"
_MODULES = sorted(set(re.findall(r"python -m ((?:benchmarks|loadgen|tests)[\w.]*)", _MAKEFILE.read_text(encoding="utf-8"))))


def test_the_benchmarks_are_among_them() -> None:
    focused = [module for module in _MODULES if module.startswith("benchmarks.focused.")]
    assert len(focused) >= 9


@pytest.mark.parametrize("module", _MODULES)
def test_a_target_runs_a_module(module: str) -> None:
    found = find_spec(module)
    assert found is not None
    if found.submodule_search_locations is not None:
        assert find_spec(f"{module}.__main__") is not None
