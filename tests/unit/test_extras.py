"""Libraries that the core does not bring along: each is missed by name, with the command that installs it."""

import subprocess
import sys
from pathlib import Path

import pytest

import dyorc
from dyorc.authoring.loading import load
from dyorc.cli import profile
from dyorc.config import Settings
from dyorc.errors import ConfigurationError, MissingLibraryError, ModuleImportError
from dyorc.server.program_loading import head_start
from dyorc.simulation import pictures
from dyorc.store.opening import store_of
from dyorc.system import extras

_TORCH_PROGRAM = """
import torch
"""


@pytest.mark.parametrize("extra", ["ray", "torch", "redis", "planner", "traces", "simulation"])
def test_nothing_is_missing_where_all_is_installed(extra: str) -> None:
    extras.require(extra, "this test")


def test_the_error_names_library_user_command_and_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingLibraryError) as raised:
        extras.require("planner", "this plan", "or wait")
    assert str(raised.value) == "this plan needs networkx, which is not installed: pip install 'dyorc-core[planner]'; or wait"
    assert raised.value.name == "networkx"
    assert isinstance(raised.value, ImportError)
    assert isinstance(raised.value, ConfigurationError)


def test_a_server_without_ray_says_how_to_serve_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for settings in (Settings(), Settings.model_validate({"deployment": {"ray_address": "auto"}})):
        with pytest.raises(MissingLibraryError, match=r"ray.*'dyorc-core\[ray\]'; .*--in-process"):
            head_start(settings, without_ray=False).__enter__()
    with head_start(Settings(), without_ray=True) as start:
        assert start is None


def test_weights_need_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingLibraryError, match=r"dyorc.load_module needs torch.*'dyorc-core\[torch\]'"):
        dyorc.load_module(dict, tmp_path / "any.safetensors")


def test_a_users_module_that_imports_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "needs_torch.py").write_text(_TORCH_PROGRAM)
    with pytest.raises(ModuleImportError, match=r"needs_torch.py, line 2\); pip install 'dyorc-core\[torch\]'"):
        load(f"{tmp_path / 'needs_torch.py'}:flow")


def test_a_store_in_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingLibraryError, match=r"rediss:// needs redis.*'dyorc-core\[redis\]'; sqlite"):
        store_of("rediss://host/0")


def test_pictures_of_the_simulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingLibraryError, match=r"a picture needs matplotlib.*'dyorc-core\[simulation\]'"):
        pictures.draw_scaling({}, tmp_path / "any.png")


def test_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingLibraryError, match=r"`dyorc profile` needs py-spy.*'dyorc-core\[profile\]'"):
        profile._py_spy()  # pyright: ignore[reportPrivateUsage]


def test_planning_needs_more_than_torch() -> None:
    lines = "import sys; sys.modules['torch'] = None; import dyorc.planner.cluster"
    ended = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=False)
    assert ended.stderr.endswith("dyorc.planner needs torch, which is not installed: pip install 'dyorc-core[planner]'\n")
