"""A version's name may come again with other code: what another process deploys by it is never an earlier version of it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from dyorc.authoring.bundles import Bundle, ModuleSource
from dyorc.config import Settings
from dyorc.deployment.loaded_versions import LoadedVersions
from dyorc.deployment.state import DeploymentState, Version
from dyorc.models.offers import ModelKey
from dyorc.server.program_loading import load_targets
from dyorc.server.runtime import in_process
from tests.deadlines import TIMEOUT_S, wait_until_async

_CODE = """
import numpy as np
from jaxtyping import Float
import dyorc

@dyorc.program
def plus(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x + {number}

@dyorc.workflow
async def flow(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return plus(x)
"""
_KEY = ModelKey("flow", "blue")


class _Requests:
    """The server's requests; one runs until a test ends it."""

    def __init__(self) -> None:
        self.have_ended = True

    def begin_epoch(self) -> "_Requests":
        return self

    def __call__(self) -> bool:
        return self.have_ended


@asynccontextmanager
async def _loaded(folder: Path, requests: _Requests) -> AsyncGenerator[tuple[LoadedVersions, DeploymentState]]:
    """Loads a first version, which adds 1."""
    path = folder / "first.py"
    path.write_text(_CODE.format(number=1))
    with load_targets([f"{path}:flow"], Settings(), is_group=False) as served:
        async with in_process(served.repertoire, Settings()) as runtime:
            versions = LoadedVersions(runtime, served.repertoire, {}, requests.begin_epoch, TIMEOUT_S)
            versions.begin(served.versions, served.record, is_group=False)
            yield versions, served.record
            await versions.close()


def _version(number: int) -> Version:
    """Returns a version that adds a number, as another process deploys it."""
    bundle = Bundle("/app.py:flow", "app", {"app": ModuleSource("/app.py", _CODE.format(number=number))})
    return Version(model="flow", version="blue", bundle=bundle, names={"plus": "plus@blue"})


def _adds(versions: LoadedVersions) -> float:
    """Returns what the loaded version adds."""
    program = versions.loaded[_KEY].programs["plus"]
    return float(program.factory()(np.zeros((1, 1), np.float32))[0, 0])


async def test_a_version_that_is_left_over_is_not_taken_for_another_of_its_name(tmp_path: Path) -> None:
    async with _loaded(tmp_path, _Requests()) as (versions, _):
        await versions.bring_in(_version(2), TIMEOUT_S)  # for a process that ended before it could deploy it
        await versions.bring_in(_version(3), TIMEOUT_S)
        assert _adds(versions) == 3


async def test_a_version_that_leaves_is_not_taken_for_another_of_its_name(tmp_path: Path) -> None:
    requests = _Requests()
    async with _loaded(tmp_path, requests) as (versions, record):
        await versions.bring_in(_version(2), TIMEOUT_S)
        history = record.lines["flow"]
        versions.show(record.with_history("flow", history.with_version(_version(2), 0.5)))
        requests.have_ended = False
        versions.show(record)
        bringing = asyncio.create_task(versions.bring_in(_version(3), TIMEOUT_S))
        await asyncio.sleep(0)
        assert _adds(versions) == 2, "a request of it runs"
        requests.have_ended = True
        await bringing
        assert _adds(versions) == 3
        versions.show(record.with_history("flow", history.with_version(_version(3), 0.5)))
        versions.show(record)
        await wait_until_async(lambda: _KEY not in versions.loaded, "it leaves as any other")
