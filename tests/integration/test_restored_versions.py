"""What a server serves after a restart: what was deployed in its own project, and nothing of another's."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

import dyorc
from dyorc.config import DEFAULT_GROUP
from dyorc.deployment.persistence import owner_of_notes
from dyorc.testing import ServerProcess, serving
from tests.deadlines import TIMEOUT_S, wait_until

_CODE = """
from pathlib import Path
import numpy as np
from jaxtyping import Float
import dyorc
{before}
@dyorc.program
class Plus:
    def __init__(self, number: float, weights: str) -> None:
        self.number = number + 0 * len(Path(weights).read_text())
    def __call__(self, x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        return x + self.number

plus = Plus({number}, "{folder}/weights").with_options(name="{program}")

@dyorc.workflow
async def {name}(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return plus(x)
"""
_X = np.array([1, 2], np.float32)


class _Project:
    """A folder with workflows, each of which adds a number with a program `small` of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "weights").touch()
        self.folder = folder

    def write(self, file: str, name: str, number: int, before: str = "", program: str = "small") -> str:
        """Writes a file with a workflow, and returns its target."""
        text = _CODE.format(name=name, number=number, folder=self.folder, before=before, program=program)
        (self.folder / file).write_text(text)
        return f"{self.folder}/{file}:{name}"


@pytest.fixture
def a(tmp_path: Path) -> _Project:
    return _Project(tmp_path / "a")


@pytest.fixture
def b(tmp_path: Path) -> _Project:
    return _Project(tmp_path / "b")


@contextmanager
def _served(tmp_path: Path, target: str, *options: str, group: str = "") -> Generator[tuple[ServerProcess, dyorc.Client]]:
    """Serves a target with the store that all servers of a test share."""
    environment = {"DYORC_STORE": f"sqlite://{tmp_path}/store.sqlite"} | ({"DYORC_CLUSTER__GROUP": group} if group else {})
    with (
        serving(target, *options, in_process=True, environment=environment) as server,
        dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client,
    ):
        yield server, client


def _models(client: dyorc.Client) -> dict[str, float]:
    return {name: float(client.infer(name, x=_X)[0]) - 1 for name in client.deployments()}


def test_a_deploy_in_one_project_does_not_touch_another(tmp_path: Path, a: _Project, b: _Project) -> None:
    target, extra, other = a.write("app.py", "classify", 1), a.write("extra.py", "extra", 2), b.write("other.py", "flow", 3)
    with _served(tmp_path, target) as (_, client):
        client.deploy(extra)
    with _served(tmp_path, other, "--cells", "1") as (server, client):
        assert _models(client) == {"flow": 3}
        assert set(client.status()["programs"]) == {"small"}
        assert "deployed_" not in server.output
    with _served(tmp_path, target) as (server, client):
        assert _models(client) == {"classify": 1, "extra": 2}, "its own project has its deployments back"
        assert "dyorc undeploy extra ends it" in server.output
        assert "target= " not in server.output


def test_a_target_that_was_never_deployed_is_served_from_the_disk_although_another_was(tmp_path: Path, a: _Project) -> None:
    fraud, order = a.write("fraud.py", "fraud", 1, program="of_fraud"), a.write("order.py", "order", 1, program="of_order")
    with _served(tmp_path, fraud, order) as (_, client):
        a.write("fraud.py", "fraud", 2, program="of_fraud")
        client.deploy(fraud)
    a.write("fraud.py", "fraud", 3, program="of_fraud")
    a.write("order.py", "order", 3, program="of_order")
    with _served(tmp_path, fraud, order, "--cells", "2") as (server, client):
        assert _models(client) == {"fraud": 2, "order": 3}
        assert "model=fraud" in server.output
        assert "model=order" not in server.output
        a.write("order.py", "order", 4, program="of_order")
        server.wait_for("Ready after")
        cells = psutil.Process(server.process.pid).children()
        for cell in cells:
            cell.kill()
        psutil.wait_procs(cells, TIMEOUT_S)
        wait_until(lambda: _answers(client), "a cell serves again")
        assert _models(client) == {"fraud": 2, "order": 3}, "a cell that ends is no restart of the server"


def _answers(client: dyorc.Client) -> bool:
    try:
        return client.is_ready()
    except dyorc.DyOrcError:
        return False


def test_in_a_group_restored_models_yield_to_targets(tmp_path: Path, a: _Project, b: _Project) -> None:
    target, extra = a.write("app.py", "classify", 1), a.write("extra.py", "extra", 2)
    with _served(tmp_path, target, group="both") as (_, client):
        client.deploy(extra)
        client.deploy(a.write("small.py", "flow", 4))
        assert client.deployments()["extra"]["versions"]["1"]["programs"] == {"small": "small@1"}
    other = b.write("other.py", "flow", 3)
    with _served(tmp_path, other, group="both") as (server, client):
        assert _models(client) == {"flow": 3, "extra": 2}, "its own `flow`, not the one that was deployed"
        assert client.deployments()["flow"]["versions"]["1"]["programs"] == {"small": "small"}
        assert client.infer("small", x=_X)[0] == 4, "its own program, too"
        assert "deployed_model_not_served" in server.output


def test_programs_of_restored_models_get_other_names(tmp_path: Path, a: _Project, b: _Project) -> None:
    with _served(tmp_path, a.write("app.py", "classify", 1, program="large"), group="both") as (_, client):
        client.deploy(a.write("extra.py", "extra", 2))
        assert client.deployments()["extra"]["versions"]["1"]["programs"] == {"small": "small"}
    with _served(tmp_path, b.write("app.py", "another", 5), group="both") as (_, client):
        assert client.deployments()["extra"]["versions"]["1"]["programs"] == {"small": "small@1"}
        assert client.deployments()["another"]["versions"]["1"]["programs"] == {"small": "small"}
        assert _models(client) == {"another": 5, "extra": 2}


def test_a_restored_version_that_cannot_be_imported_fails_alone(tmp_path: Path, a: _Project) -> None:
    target = a.write("app.py", "classify", 1)
    library = a.folder / "library.txt"
    library.touch()
    extra = a.write("extra.py", "extra", 2, f"Path('{library}').read_text()")
    with _served(tmp_path, target) as (_, client):
        client.deploy(extra)
    library.unlink()
    with _served(tmp_path, target) as (server, client):
        server.wait_for("deployed_version_not_served.*dyorc undeploy extra")
        assert f"{tmp_path}/store.sqlite" in server.output
        assert client.infer("classify", x=_X)[0] == 2
        library.touch()
        assert client.deploy(extra, version="1")["default"] == "1", "the same code, now that it can be loaded"
        assert _models(client) == {"classify": 1, "extra": 2}
    library.unlink()
    with _served(tmp_path, target) as (server, client):
        client.undeploy("extra")
    with _served(tmp_path, target) as (server, client):
        assert "deployed_version_not_served" not in server.output


def test_a_restored_version_whose_programs_cannot_be_loaded_fails_alone(tmp_path: Path, a: _Project, b: _Project) -> None:
    target, extra = a.write("app.py", "classify", 1), b.write("extra.py", "extra", 2)
    shutil.copy(extra.rpartition(":")[0], a.folder)
    with _served(tmp_path, target) as (_, client):
        client.deploy(f"{a.folder}/extra.py:extra")
    (b.folder / "weights").unlink()
    with _served(tmp_path, target) as (server, client):
        server.wait_for("Ready after")
        assert client.is_ready()
        assert client.infer("classify", x=_X)[0] == 2


def test_an_undeployed_target_is_named_with_the_way_back(tmp_path: Path, a: _Project) -> None:
    target = a.write("app.py", "classify", 1)
    with _served(tmp_path, target) as (_, client):
        client.undeploy("classify")
    with _served(tmp_path, target) as (server, client):
        server.wait_for("Models: none")
        assert f"dyorc deploy {target} brings it back" in server.output
        client.deploy(target)
        assert client.infer("classify", x=_X)[0] == 2


def test_notes_belong_to_the_files_that_are_served_or_to_a_chosen_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for project in ("a", "b"):
        (tmp_path / project).mkdir()
        (tmp_path / project / "package.py").touch()
    monkeypatch.chdir(tmp_path / "a")
    files = owner_of_notes(DEFAULT_GROUP, ["app.py:x", "more.py:y"])
    assert files == owner_of_notes(DEFAULT_GROUP, [f"{tmp_path}/a/more.py:z", f"{tmp_path}/a/app.py:x"])
    assert files != owner_of_notes(DEFAULT_GROUP, ["app.py:x"])
    module = owner_of_notes(DEFAULT_GROUP, ["package:x"])
    assert owner_of_notes("mine", ["app.py:x"]) == "mine"
    monkeypatch.chdir(tmp_path / "b")
    assert files != owner_of_notes(DEFAULT_GROUP, ["app.py:x", "more.py:y"])
    assert module != owner_of_notes(DEFAULT_GROUP, ["package:x"])
    assert module == owner_of_notes(DEFAULT_GROUP, [f"{tmp_path}/a/package.py:x"])
