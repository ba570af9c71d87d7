"""Code whose import never ends in the server, though it did where it was tried: the deploy fails, and nothing of it is left."""

import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest

from dyorc.authoring.bundle_imports import BundleImporter
from dyorc.authoring.bundles import Bundle, ModuleSource
from dyorc.config import Settings
from dyorc.deployment.loaded_versions import LoadedVersions
from dyorc.deployment.state import Version
from dyorc.errors import DeployError
from dyorc.models.offers import ModelKey
from dyorc.server.program_loading import load_targets
from dyorc.server.runtime import in_process
from tests.deadlines import TIMEOUT_S, wait_until_async

_CODE = """
import numpy as np
from jaxtyping import Float
import dyorc
{hang}
@dyorc.program
def plus(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x + 1

@dyorc.workflow
async def flow(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return plus(x)
"""
_COMPUTES = "while True: pass"
_WAITS = """
from its_gate import wait
try:
    wait()
finally:
    import neighbour
"""
_IMPORT_TIMEOUT_S = 2.0


@asynccontextmanager
async def _loaded(folder: Path) -> AsyncGenerator[LoadedVersions]:
    path = folder / "first.py"
    path.write_text(_CODE.format(hang=""))
    with load_targets([f"{path}:flow"], Settings(), is_group=False) as served:
        async with in_process(served.repertoire, Settings()) as runtime:
            versions = LoadedVersions(runtime, served.repertoire, {}, lambda: lambda: True, _IMPORT_TIMEOUT_S)
            versions.begin(served.versions, served.record, is_group=False)
            yield versions
            await versions.close()


def _version(hang: str = "") -> Version:
    modules = {"app": ModuleSource("/app.py", _CODE.format(hang=hang)), "neighbour": ModuleSource("/neighbour.py", "")}
    return Version(model="flow", version="blue", bundle=Bundle("/app.py:flow", "app", modules), names={"plus": "plus@blue"})


def _traces() -> list[str]:
    """Returns what versions have left in the interpreter."""
    importers = [repr(finder) for finder in sys.meta_path if isinstance(finder, BundleImporter)]
    return importers + [name for name in sys.modules if name.startswith("_dyorc_version_")]


def _num_imports() -> int:
    return sum(thread.name == "dyorc-import" for thread in threading.enumerate())


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Generator[threading.Event]:
    """Versions that wait, in a C function, do so until it is set."""
    gate = threading.Event()
    module = ModuleType("its_gate")
    module.__dict__["wait"] = gate.wait
    monkeypatch.setitem(sys.modules, "its_gate", module)
    yield gate
    gate.set()


async def test_a_loop_is_interrupted_and_the_next_deploy_works(tmp_path: Path) -> None:
    async with _loaded(tmp_path) as versions:
        before = _traces()
        with pytest.raises(DeployError, match=r"^/app\.py:flow cannot be loaded: importing it in the server, .* more than 2 s$"):
            await versions.bring_in(_version(_COMPUTES), TIMEOUT_S)
        await wait_until_async(lambda: _num_imports() == 0, "the thread has ended")
        assert _traces() == before
        await versions.bring_in(_version(), TIMEOUT_S)
        assert ModelKey("flow", "blue") in versions.loaded


async def test_a_thread_that_is_left_behind_is_in_nobodys_way_and_finds_nothing_more(
    tmp_path: Path, gate: threading.Event
) -> None:
    async with _loaded(tmp_path) as versions:
        before = _traces()
        with pytest.raises(DeployError, match="has taken more than 2 s"):
            await versions.bring_in(_version(_WAITS), TIMEOUT_S)
        assert _num_imports() == 1
        assert _traces() == before
        await versions.bring_in(_version(), TIMEOUT_S)
        own = _traces()
        gate.set()
        await wait_until_async(lambda: _num_imports() == 0, "the thread has ended")
        assert _traces() == own
