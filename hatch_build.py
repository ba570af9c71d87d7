"""Compiles the engine while the package is built, if the environment variable DYORC_COMPILE is 1.

    DYORC_COMPILE=1 pip install .

mypyc makes extension modules of the engine's own files, beside them. Python prefers these when it imports the engine; without
them it takes the files themselves, which do the same and stay the reference. `make compile` and `make pure` switch between the
two in a checkout.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_ENGINE = Path("dyorc/engine")
_LEFT_OUT = {
    # mypyc drops what msgspec is told of a class: frozen, order, gc
    *("events.py", "actions.py", "request_trace.py", "model/request_context.py"),
    # it drops the types of fields, by which msgspec reads values of other processes
    "tallies.py",
    "__init__.py",
}
_SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup
options = ["--follow-imports=silent", "--ignore-missing-imports"]
modules = mypycify([*options, *sys.argv.pop().split(",")], opt_level="3", group_name="dyorc_engine")
setup(name="dyorc-engine", packages=[], ext_modules=modules, script_args=["build_ext", "--inplace"])
"""


class CustomBuildHook(BuildHookInterface[Any]):
    """Takes part in hatchling's builds."""

    def dependencies(self) -> list[str]:
        """Returns what the build needs besides hatchling."""
        return ["mypy[mypyc]>=1.18", "msgspec>=0.19", "setuptools"] if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the engine, if that is wanted, and adds what came out to the wheel."""
        if self.target_name != "wheel" or not _is_wanted():
            return
        root = Path(self.root)
        compile_engine(root)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(made): str(made.relative_to(root)) for made in compiled(root)})


def compile_engine(root: Path) -> None:
    """Makes the extension modules.

    Raises:
        subprocess.CalledProcessError: If mypyc or the C compiler fails; their output says why.
    """
    remove_compiled(root)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(root / "dyorc", copy / "dyorc", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        (copy / "dyorc" / "__init__.py").write_text("")  # it names all of DyOrc, which mypy would read for minutes
        (copy / "setup.py").write_text(_SETUP)
        subprocess.run([sys.executable, "setup.py", ",".join(map(str, _sources(copy)))], cwd=copy, check=True)
        for made in compiled(copy):
            shutil.copy(made, root / made.relative_to(copy))


def remove_compiled(root: Path) -> None:
    """Removes the extension modules, so that the files themselves are imported."""
    for made in list(compiled(root)):
        made.unlink()


def compiled(root: Path) -> Iterator[Path]:
    """Yields the extension modules that are there, the one that all of them share among them."""
    yield from root.glob("dyorc_engine__mypyc.*.so")
    yield from (root / _ENGINE).rglob("*.so")


def _sources(root: Path) -> Iterator[Path]:
    for source in sorted((root / _ENGINE).rglob("*.py")):
        name = source.relative_to(root / _ENGINE)
        if str(name) not in _LEFT_OUT and source.name != "__init__.py" and name.parts[0] != "invariants":
            yield source.relative_to(root)


def _is_wanted() -> bool:
    return os.environ.get("DYORC_COMPILE") == "1"
