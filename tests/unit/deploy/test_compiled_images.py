"""Which wheel an image gets: the one with the compiled engine if its Python can import it, else the pure one."""

import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_FILE = Path(__file__).parents[3] / "deploy/docker/install_package.py"
_PURE = ["/dist/dyorc-1-py3-none-any.whl", "/dist/dyorc_core-1-py3-none-any.whl"]
_COMPILED = "/dist/dyorc_core-1-cp311-cp311-linux_x86_64.whl"


class Image:
    """An image's pip and Python.

    Attributes:
        installed: The wheels of each installation.
    """

    def __init__(self, *, takes_compiled: bool, imports_compiled: bool) -> None:
        self._takes_compiled = takes_compiled
        self._imports_compiled = imports_compiled
        self.installed: list[list[str]] = []

    def run(self, command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        """Answers as those would."""
        succeeds = True
        if "install" in command:
            wheels = [word for word in command if word.endswith(".whl")]
            self.installed.append(wheels)
            succeeds = self._takes_compiled or _COMPILED not in wheels
        elif "-c" in command:
            succeeds = self._imports_compiled or _COMPILED not in self.installed[-1]
        return subprocess.CompletedProcess(list(command), int(not succeeds))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("install_package", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_PACKAGE", str(tmp_path / "package"))
    return module


def _installed(script: ModuleType, monkeypatch: pytest.MonkeyPatch, image: Image, wheels: list[str]) -> list[list[str]]:
    monkeypatch.setattr(script.subprocess, "run", image.run)
    script.main(wheels)
    return image.installed


def test_the_compiled_wheel_takes_the_place_of_the_pure_one(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image(takes_compiled=True, imports_compiled=True)
    assert _installed(script, monkeypatch, image, [*_PURE, _COMPILED]) == [[_COMPILED, _PURE[0]]]


@pytest.mark.parametrize(("takes", "imports"), [(False, True), (True, False)], ids=["another Python", "an older C library"])
def test_a_wheel_that_does_not_fit_is_replaced_by_the_pure_one(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, takes: bool, imports: bool
) -> None:
    image = Image(takes_compiled=takes, imports_compiled=imports)
    assert _installed(script, monkeypatch, image, [*_PURE, _COMPILED])[-1] == _PURE


def test_without_a_compiled_wheel_the_pure_one_is_taken(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image(takes_compiled=False, imports_compiled=False)
    assert _installed(script, monkeypatch, image, _PURE) == [_PURE]


def test_a_pure_wheel_that_cannot_be_installed_ends_the_build(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    with pytest.raises(SystemExit, match="cannot install"):
        script.main(_PURE)
