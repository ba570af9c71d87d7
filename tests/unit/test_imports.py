"""What a start waits for: only what it needs is imported, with the garbage collector at rest."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from dyorc.config import Settings
from dyorc.server.program_loading import load_targets

APP = """
import gc
import numpy as np
from jaxtyping import Float
import dyorc

IS_COLLECTING = gc.isenabled()


@dyorc.program
def collecting(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    return x + IS_COLLECTING
"""


@pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("dyorc.cli.main", "numpy jaxtyping fastapi grpc httpx ray torch"),
        ("dyorc.supervisor.cell_main", "httpx ray torch matplotlib"),
    ],
)
def test_a_command_imports_no_library_that_it_may_not_need(module: str, slow: str) -> None:
    program = f"import sys, {module}; print(*(name for name in {slow.split()} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.mark.parametrize(("module", "name"), [("openai", "ChatRequest"), ("programs", "onnx")])
def test_a_module_is_there_as_an_attribute_and_imported_on_first_use(module: str, name: str) -> None:
    program = f"import sys, dyorc; print('dyorc.{module}' in sys.modules, hasattr(dyorc.{module}, {name!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_planners_old_name_gives_the_same_modules_with_a_warning_and_names_that_were_exported() -> None:
    program = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from dyorc.offline.program import Ref, layered, repeated
    from dyorc.offline.runtime import Nursery, Ran
    from dyorc.offline.verify import proved
from dyorc.planner.program import ValueRef
from dyorc.planner.verify import mark_proved
print(Ref is ValueRef, proved is mark_proved, *(w.category.__name__ for w in caught if "dyorc" in str(w.message)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "DeprecationWarning"]


def test_the_collector_rests_while_modules_are_imported(tmp_path: Path) -> None:
    file = tmp_path / "collected_app.py"
    file.write_text(APP)
    with load_targets([f"{file}:collecting"], Settings()):
        assert sys.modules["collected_app"].IS_COLLECTING is False
        assert gc.isenabled()
