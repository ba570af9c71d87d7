"""What a server serves of a target that was never deployed, although others were."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dyorc.deployment.initial_versions import load_initial_versions
from dyorc.deployment.loading_versions import LoadedVersion
from dyorc.deployment.state import DeploymentState, ModelHistory

_CODE = """
import numpy as np
from jaxtyping import Float
import dyorc

NUMBER = {number}

@dyorc.program(name="add_of_{name}", group={group})
def add(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x + NUMBER

@dyorc.workflow
async def {name}(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return add(x)
"""
_ANOTHER = """
@dyorc.workflow
async def other(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return add(x)
"""


class _Folder:
    """A folder with workflows that add a number."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, number: int, group: str | None = None, more: str = "") -> str:
        """Writes a file with a workflow, and returns its target."""
        text = _CODE.format(name=name, number=number, group=repr(group))
        (self.path / f"{name}_of_test.py").write_text(text + more)
        return f"{self.path}/{name}_of_test.py:{name}"

    def forget(self) -> None:
        """Forgets what was imported, as a process that starts."""
        for name in [name for name in sys.modules if name.endswith("_of_test")]:
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Folder]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would outlive a change within a second
    path = list(sys.path)
    folder = _Folder(tmp_path)
    yield folder
    folder.forget()
    sys.path[:] = path


def _number(versions: list[LoadedVersion], model: str) -> int:
    (loaded,) = [version for version in versions if version.model == model]
    text = next(iter(loaded.bundle.modules.values())).text
    in_bundle = int(text.partition("NUMBER = ")[2].split()[0])
    function = loaded.workflow.function
    assert function.__globals__["NUMBER"] == in_bundle, "replicas run the same code"
    return in_bundle


def _deployed(state: DeploymentState, model: str) -> DeploymentState:
    """Returns the state after the same code was deployed once more, with all requests."""
    history: ModelHistory = state.lines[model]
    (version,) = history.versions.values()
    again = type(version)(model=model, version="2", bundle=version.bundle, names=version.names, groups=version.groups)
    return state.with_history(model, history.with_version(again, 1.0))


@pytest.mark.parametrize("is_group", [False, True], ids=["serve", "orchestrator"])
def test_what_was_never_deployed_is_served_from_the_disk(folder: _Folder, is_group: bool) -> None:
    targets = [folder.write("fraud", 1), folder.write("order", 1)]
    with load_initial_versions(targets, DeploymentState(), {}) as (_, state):
        deployed = DeploymentState.of_json(_deployed(state, "fraud").to_json())
    folder.forget()
    folder.write("fraud", 2)
    folder.write("order", 2)
    with load_initial_versions(targets, deployed, {}, is_group=is_group) as (versions, after):
        assert _number(versions, "fraud") == 1, "as it was deployed"
        assert _number(versions, "order") == 2, "as it lies on the disk"
        assert after.lines["order"].is_as_started
        assert not after.lines["fraud"].is_as_started


@pytest.mark.parametrize("is_group", [False, True], ids=["serve", "orchestrator"])
def test_its_programs_keep_their_names_and_processes_if_the_disk_has_not_changed(folder: _Folder, is_group: bool) -> None:
    targets = [folder.write("both", 1, "lm", _ANOTHER), f"{folder.path}/both_of_test.py:other"]
    with load_initial_versions(targets, DeploymentState(), {}) as (_, state):
        deployed = DeploymentState.of_json(_deployed(state, "both").to_json())
    folder.forget()
    with load_initial_versions(targets, deployed, {}, is_group=is_group) as (versions, _):
        placed = {(program.name, program.group) for version in versions for program in version.programs.values()}
        assert placed == {("add_of_both", "lm")}, "the group has one process, as before"


def test_a_process_that_goes_on_reads_it_no_second_time(folder: _Folder) -> None:
    targets = [folder.write("fraud", 1), folder.write("order", 1)]
    with load_initial_versions(targets, DeploymentState(), {}) as (_, of_leader):
        deployed = _deployed(of_leader, "fraud")
    folder.forget()
    folder.write("order", 2)  # on the disk of the standby
    with load_initial_versions(targets, DeploymentState(), {}) as (_, state):
        code = state.code_as_started()
        folder.write("order", 3)
        with load_initial_versions(targets, deployed, {}, code=code) as (versions, _):
            assert _number(versions, "fraud") == 1
            assert _number(versions, "order") == 2, "as it was when it began to stand by"
