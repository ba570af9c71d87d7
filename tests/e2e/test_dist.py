"""What `make dist` has built: what it holds, and that it works where there is no checkout. `make test-dist` runs this.

The wheel is installed into a separate virtual environment. Its libraries are those of the environment that runs the tests,
through a `.pth` file: they are gigabytes, and a second download would show nothing about the wheel. Such a file only appends
folders to `sys.path`: the wheel comes first, and the `.pth` files in those folders, one of which leads to this checkout, are not
read. CONTRIBUTING.md has the full installation, which takes the libraries that the wheel asks for.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

import httpx
import numpy as np
import pytest

from dyorc.testing import ServerProcess
from tests.markdown import python_examples

pytestmark = pytest.mark.dist

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300.0


def _built(pattern: str) -> Path:
    found = list((ROOT / "dist").glob(pattern))
    assert len(found) == 1, f"dist/ has {len(found)} files like {pattern}, one was expected: run `make dist`"
    return found[0]


def _tracked(*folders: str) -> set[str]:
    command = ["git", "ls-files", "--", *folders]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


@pytest.fixture(scope="module", params=["none-any", "cp*"])
def wheel(request: pytest.FixtureRequest) -> Path:
    """The pure one, and the one with the compiled engine."""
    return _built(f"dyorc_core-*-{request.param}.whl")


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    return _metadata(wheel)


# What they hold


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    compiled = {name for name in held if name.endswith(".so")}
    assert bool(compiled) != wheel.name.endswith("-none-any.whl")
    assert held - compiled == _tracked("dyorc", "loadgen")
    assert {"dyorc/py.typed", "dyorc/protocol/inference_pb2_grpc.py", "dyorc/gateway/ui/page/index.html"} <= held
    assert "dyorc/planner/planners/tag/prior.safetensors" in held, "without it, the planner searches unguided and says nothing"


def test_the_source_archive_holds_what_builds_runs_and_explains_it() -> None:
    with tarfile.open(_built("dyorc_core-*.tar.gz")) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    files = {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "hatch_build.py", "constraints.txt"}
    assert _tracked("dyorc", "loadgen", "deploy", "services", "docs", "examples") | files <= held
    assert {
        "helm/dyorc/Chart.yaml",
        "helm/dyorc/files/dyorc.rules.yml",
        "helm/dyorc/files/grafana/overview.json",
    } <= held
    assert not {name for name in held if name.startswith(("tests/", "benchmarks/", "."))} - {".gitignore"}


def test_the_version_is_that_of_the_tag(metadata: Message) -> None:
    command = ["git", "describe", "--tags", "--exact-match", "--match", "v[0-9]*"]
    tag = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    was_changed = re.search(r"\.d\d{8}$", metadata["Version"])
    if tag and not was_changed:
        assert metadata["Version"] == tag.removeprefix("v")
    else:
        assert re.fullmatch(r"\d+\.\d+\.\d+\.dev\d+\+g[0-9a-f]+(\.d\d{8})?", metadata["Version"])


def test_extras_and_python_are_those_of_the_project(metadata: Message) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    assert metadata["Requires-Python"] == project["requires-python"]


def test_the_core_asks_for_none_of_the_large_libraries(metadata: Message) -> None:
    always = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {re.split(r"[^A-Za-z0-9_-]", line)[0] for line in always}
    assert "numpy" in names
    assert not names & {"torch", "ray", "redis", "matplotlib", "scipy"}


def test_the_metapackage_is_the_core_with_ray_torch_and_redis(metadata: Message) -> None:
    wheel = _built("dyorc-*.whl")
    meta = _metadata(wheel)
    needs, version = meta.get_all("Requires-Dist", []), metadata["Version"]
    assert meta["Version"] == version
    assert [line for line in needs if "extra ==" not in line] == [f"dyorc-core[ray,redis,torch]=={version}"]
    extras = metadata.get_all("Provides-Extra", [])
    assert {line for line in needs if "extra ==" in line} == {
        f"dyorc-core[{extra}]=={version}; extra == '{extra}'" for extra in extras
    }
    with zipfile.ZipFile(wheel) as archive:
        assert all(".dist-info/" in name for name in archive.namelist()), "it holds no code"


# Installed, elsewhere


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and the folder of a user who has copied README's quick start."""

    bin: Path
    folder: Path

    def run(self, *command: str) -> str:
        """Returns what a command of the environment prints."""
        return _run([str(self.bin / command[0]), *command[1:]], self.folder)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=_ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    home = tmp_path_factory.mktemp("user")
    venv.create(home / "venv", with_pip=True)
    site = home / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    libraries = {sysconfig.get_paths()["purelib"], str(Path(np.__file__).parents[1])}  # an environment may borrow another's
    (site / "libraries.pth").write_text("\n".join(sorted(libraries)))
    _run([str(home / "venv/bin/pip"), "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", str(wheel)], home)
    twenty_lines = python_examples(ROOT / "README.md")[0]
    (home / "app.py").write_text(twenty_lines)
    np.save(home / "x.npy", np.arange(1, 65, dtype=np.float32))
    return Installed(home / "venv" / "bin", home)


@pytest.fixture(scope="module")
def server(installed: Installed) -> Iterator[ServerProcess]:
    command = [str(installed.bin / "dyorc"), "serve", "app.py:classify", "--in-process", "--port", "0", "--grpc-port", "0"]
    with ServerProcess(command, folder=installed.folder) as found:
        found.wait_until_ready(TIMEOUT_S)
        yield found
        found.stop()


def test_the_wheel_is_what_runs(installed: Installed, metadata: Message) -> None:
    assert installed.run("dyorc", "--version") == f"dyorc {metadata['Version']}\n"
    found = installed.run("python", "-c", "import dyorc, loadgen; print(dyorc.__file__, loadgen.__file__)")
    assert all(Path(path).is_relative_to(installed.folder / "venv") for path in found.split())


def test_the_twenty_lines_run_without_a_server(installed: Installed) -> None:
    assert "float32[10]" in installed.run("dyorc", "run", "app.py:classify", "-i", "x.npy")


_MODEL = """
from dyorc.planner.models import gpt

def make_model():
    return gpt(layers=1, hidden=16, vocabulary=32, sequence=8, batch=8)
"""
_CLUSTER = 'from dyorc.planner.cluster import even_cluster, write_cluster; write_cluster(even_cluster(2), "cluster.toml")'
_PRIOR = 'from dyorc.planner.plan.plan_file import read_plan; print(dict(read_plan("plan.json").provenance.notes)["prior"])'


def test_the_guided_planner_plans_with_the_weights_in_the_wheel(installed: Installed) -> None:
    (installed.folder / "model.py").write_text(_MODEL)
    installed.run("python", "-c", _CLUSTER)
    command = ["dyorc", "plan", "model.py:make_model", "--cluster", "cluster.toml", "--planner", "tag", "-o", "plan.json"]
    installed.run(*command)
    assert installed.run("python", "-c", _PRIOR) == "network\n"


def test_the_twenty_lines_are_served(installed: Installed, server: ServerProcess, metadata: Message) -> None:
    data = list(range(1, 65))
    body = json.dumps({"inputs": [{"name": "image", "shape": [64], "datatype": "FP32", "data": data}]})
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as client:
        answer = client.post("/v2/models/classify/infer", content=body).raise_for_status().json()
        assert client.get("/v2").raise_for_status().json()["version"] == metadata["Version"]
        assert f'version="{metadata["Version"]}"' in client.get("/metrics").raise_for_status().text
        for path in ("/ui/", "/ui/app.js", "/ui/vendor/preact.mjs", "/docs"):
            client.get(path).raise_for_status()
    assert answer["outputs"][0]["shape"] == [10]
    assert sum(answer["outputs"][0]["data"]) == pytest.approx(1.0, abs=1e-4)


_CLIENTS = """
import sys, dyorc, grpc, numpy
from dyorc.protocol import inference_pb2, inference_pb2_grpc
with dyorc.Client(sys.argv[1]) as client:
    print(client.infer("classify", image=numpy.load("x.npy")).shape)
with grpc.insecure_channel(sys.argv[2]) as channel:
    stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
    print(stub.ServerReady(inference_pb2.ServerReadyRequest(), timeout=300).ready)
"""


def test_its_client_and_its_generated_grpc_code_work(installed: Installed, server: ServerProcess) -> None:
    assert installed.run("python", "-c", _CLIENTS, server.url, server.grpc_address) == "(10,)\nTrue\n"
