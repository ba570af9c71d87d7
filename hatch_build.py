"""Compiles the engine while a wheel is built, if there is a C compiler.

With the environment variable DYORC_COMPILE=0 the wheel stays pure Python. With 1 a build that cannot compile fails, and
`pip install --editable` compiles too, beside the files of the checkout.

mypyc makes extension modules of the engine's own files. Python prefers these when it imports the engine; without them it takes
the files themselves, which do the same and stay the reference. `make compile` and `make pure` switch between the two in a
checkout.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
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

    _folder: tempfile.TemporaryDirectory[str] | None = None
    """Where a wheel's modules are, until it is written."""

    def dependencies(self) -> list[str]:
        """Returns what the build needs besides hatchling."""
        return ["mypy[mypyc]>=1.18,<3", "msgspec>=0.19", "setuptools"] if _wish() != "0" and _compiler() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the engine, if that is wanted, and adds what came out to the wheel.

        Raises:
            SystemExit: If it was asked for and there is no compiler.
            subprocess.CalledProcessError: If it was asked for and fails.
        """
        root, wish = Path(self.root), _wish()
        if self.target_name != "wheel" or wish == "0" or (version == "editable" and wish != "1"):
            return
        if not _compiler():
            if wish == "1":
                sys.exit("DYORC_COMPILE is 1, and there is no C compiler (Debian: apt install build-essential)")
            self.app.display_warning("no C compiler: the engine stays pure Python")
            return
        try:
            build_data["force_include"].update(self._compiled(root, is_editable=version == "editable"))
        except subprocess.CalledProcessError as error:
            if wish == "1":
                raise
            self.app.display_warning(f"the engine could not be compiled ({error}) and stays pure Python")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was compiled for a wheel."""
        if self._folder is not None:
            self._folder.cleanup()

    def _compiled(self, root: Path, *, is_editable: bool) -> dict[str, str]:
        """Returns where each extension module is, and its place in the wheel. Those of a wheel leave the checkout as it is."""
        if is_editable:
            compile_engine(root)
            into = root
        else:
            self._folder = tempfile.TemporaryDirectory()
            into = Path(self._folder.name)
            _compile(root, into)
        return {str(made): str(made.relative_to(into)) for made in compiled(into)}


def compile_engine(root: Path) -> None:
    """Makes the extension modules beside the files.

    Raises:
        subprocess.CalledProcessError: If mypyc or the C compiler fails; their output says why.
    """
    remove_compiled(root)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        _compile(root, copy)
        for made in compiled(copy):
            shutil.copy(made, root / made.relative_to(copy))


def _compile(root: Path, copy: Path) -> None:
    """Makes the extension modules in an empty folder."""
    shutil.copytree(root / "dyorc", copy / "dyorc", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (copy / "dyorc" / "__init__.py").write_text("")  # it names all of DyOrc, which mypy would read for minutes
    (copy / "setup.py").write_text(_SETUP)
    subprocess.run([sys.executable, "setup.py", ",".join(map(str, _sources(copy)))], cwd=copy, check=True)


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


def _wish() -> str:
    """Returns what DYORC_COMPILE says; empty if nothing.

    Raises:
        SystemExit: If it is something else than 0 or 1.
    """
    wish = os.environ.get("DYORC_COMPILE", "")
    if wish not in ("", "0", "1"):
        sys.exit(f"DYORC_COMPILE is {wish!r}, expected 0, 1 or nothing")
    return wish


def _compiler() -> str | None:
    """Returns the C compiler that setuptools would use; None without one."""
    return shutil.which((os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]) or shutil.which("cc")
