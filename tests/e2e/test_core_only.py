"""DyOrc's core without torch, Ray, Redis and the libraries of all other extras.

`make test-real` runs this in an environment that hides these libraries, `make test-dist` in a fresh one with nothing but the
core's wheel and what it asks for.
"""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from dyorc.testing import ServerProcess

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300.0
HIDDEN = [
    *("torch", "ray", "redis", "matplotlib", "networkx", "ortools", "pymetis", "scipy", "z3"),
    *("opentelemetry.sdk", "opentelemetry.exporter", "py_spy"),
]
_APP = """
import dyorc
import numpy as np
from jaxtyping import Float32

@dyorc.program(max_batch_size=32)
class Small:
    def __init__(self):
        self.weights = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)
    def __call__(self, image: Float32[np.ndarray, "batch 64"]) -> Float32[np.ndarray, "batch 10"]:
        scores = np.exp(image @ self.weights)
        return scores / scores.sum(1, keepdims=True)

@dyorc.program(max_batch_size=32)
def sharpen(scores: Float32[np.ndarray, "batch 10"]) -> Float32[np.ndarray, "batch 10"]:
    return scores**2 / (scores**2).sum(1, keepdims=True)

small = Small()

@dyorc.workflow
async def classify(image: Float32[np.ndarray, "64"]) -> Float32[np.ndarray, "10"]:
    guess = small(image)
    if await dyorc.when(guess, lambda scores: scores.max() > 0.9):
        return guess
    return sharpen(guess)
"""
_HIDE = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in {HIDDEN}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
_IMAGE = [0.01] * 64
_BODY = json.dumps({"inputs": [{"name": "image", "shape": [64], "datatype": "FP32", "data": _IMAGE}]})


@dataclass(frozen=True)
class Core:
    """An environment with the core, and a folder with a workflow in `app.py`."""

    python: Path
    folder: Path
    environment: Mapping[str, str]

    def command(self, *arguments: str) -> list[str]:
        """Returns a command line of `dyorc`."""
        return [str(self.python), "-m", "dyorc.cli.main", *arguments]

    def run(self, *arguments: str, code: int = 0, **variables: str) -> str:
        """Returns what `dyorc` prints.

        Args:
            code: The expected exit code.
            variables: Added to the environment.
        """
        return self._run(self.command(*arguments), code, variables)

    def run_python(self, program: str, *arguments: str) -> str:
        """Returns what a program prints."""
        return self._run([str(self.python), "-c", program, *arguments], 0, {})

    def serve(self, *arguments: str) -> ServerProcess:
        """Returns a server, not started yet."""
        return ServerProcess(self.command(*arguments), folder=self.folder, environment=self.environment)

    def _run(self, command: list[str], code: int, variables: Mapping[str, str]) -> str:
        environment = {**os.environ, **self.environment, **variables, "COLUMNS": "1000"}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr


def _hidden(home: Path) -> Core:
    (home / "site").mkdir()
    (home / "site" / "sitecustomize.py").write_text(_HIDE)
    return Core(Path(sys.executable), home, {"PYTHONPATH": f"{home / 'site'}{os.pathsep}{ROOT}"})


def _installed(home: Path) -> Core:
    wheel = min((ROOT / "dist").glob("dyorc_core-*.whl"))  # with the compiled engine, if that was built
    venv.create(home / "venv", with_pip=True)
    python = home / "venv" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", wheel], check=True, timeout=TIMEOUT_S, env={**os.environ, "PYTHONPATH": ""}
    )
    return Core(python, home, {"PYTHONPATH": ""})


@pytest.fixture(scope="module", params=[_hidden, pytest.param(_installed, marks=pytest.mark.dist)])
def core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Core:
    make: Callable[[Path], Core] = request.param
    made = make(tmp_path_factory.mktemp("core"))
    (made.folder / "app.py").write_text(_APP)
    (made.folder / "image.json").write_text(json.dumps({"image": _IMAGE}))
    return made


@pytest.fixture(scope="module")
def server(core: Core) -> Iterator[ServerProcess]:
    with core.serve("serve", "app.py:classify", "--in-process", "--port", "0", "--grpc-port", "0") as started:
        started.wait_until_ready(TIMEOUT_S)
        yield started


def test_the_large_libraries_are_not_there(core: Core) -> None:
    program = f"""
import importlib.util
def is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
print([name for name in {HIDDEN} if is_there(name)])
"""
    assert core.run_python(program).strip() == "[]"


_HELP = """
import contextlib, io, typer
import dyorc, loadgen
from dyorc.cli import main
from loadgen import cli
def commands(command, path):
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, [*path, name])
num_shown = 0
for app in (main._app, cli.app):
    command = typer.main.get_command(app)
    for path in commands(command, []):
        if path == ["load"]:
            continue  # the load generator's own
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            assert not command.main([*path, "--help"], standalone_mode=False), path
        num_shown += "Usage" in shown.getvalue()
print(num_shown)
"""


def test_every_command_explains_itself(core: Core) -> None:
    assert int(core.run_python(_HELP)) > 40


def test_a_workflow_runs_without_a_server(core: Core) -> None:
    assert "float32[10]" in core.run("run", "app.py:classify", "--input", "image.json")
    program = "import dyorc, numpy, app; print(dyorc.run(app.classify, numpy.full(64, 0.01, numpy.float32)).shape)"
    assert core.run_python(program).strip() == "(10,)"


def test_http_the_page_and_its_files(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as client:
        answer = client.post("/v2/models/classify/infer", content=_BODY).raise_for_status().json()
        assert answer["outputs"][0]["shape"] == [10]
        assert sum(answer["outputs"][0]["data"]) == pytest.approx(1.0, abs=1e-4)
        for path in ("/ui/", "/ui/app.js", "/docs", "/metrics", "/openapi.json", "/status"):
            client.get(path).raise_for_status()


_CLIENTS = """
import sys, dyorc, grpc, numpy
from dyorc.protocol import inference_pb2, inference_pb2_grpc
image = numpy.full(64, 0.01, numpy.float32)
with dyorc.Client(sys.argv[1]) as client:
    print(client.infer("classify", image=image).shape, client.submit("classify", image=image).result().shape)
with grpc.insecure_channel(sys.argv[2]) as channel:
    stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
    print(stub.ServerReady(inference_pb2.ServerReadyRequest(), timeout=300).ready)
"""


def test_the_client_jobs_and_grpc(core: Core, server: ServerProcess) -> None:
    shown = core.run_python(_CLIENTS, server.url, server.grpc_address)
    assert shown == "(10,) (10,)\nTrue\n"


def test_load_over_both_protocols(core: Core, server: ServerProcess) -> None:
    for url in (server.url, f"http://{server.grpc_address}"):
        kind = "http" if url == server.url else "grpc"
        report = core.run("load", "run", url, "classify", "--protocol", kind, "--rate", "20", "--duration", "1", "--json")
        assert json.loads(report.strip().splitlines()[-1])["counts"]["correct"] > 0, report


def test_a_new_version_and_back(core: Core, server: ServerProcess) -> None:
    (core.folder / "app.py").write_text(_APP.replace("0.9", "0.8"))
    assert "2" in core.run("deploy", "app.py:classify", "--version", "2", "--url", server.url)
    assert core.run("rollback", "classify", "--url", server.url)
    assert "classify" in core.run("status", "--url", server.url)


@pytest.mark.parametrize(
    "arguments", [("serve", "app.py:classify", "--in-process", "--cells", "2", "--grpc-port", "0"), ("dev", "app.py:classify")]
)
def test_cells_and_a_server_for_development(core: Core, arguments: tuple[str, ...]) -> None:
    with core.serve(*arguments, "--port", "0") as server:
        server.wait_until_ready(TIMEOUT_S)
        answer = httpx.post(f"{server.url}/v2/models/classify/infer", content=_BODY, timeout=TIMEOUT_S, trust_env=False)
        assert answer.raise_for_status().json()["outputs"][0]["shape"] == [10]


def test_a_simulation(core: Core) -> None:
    shown = core.run("simulate", "compare", "--workload", "cascade", "--load", "0.5", "--requests", "50", "--json")
    assert json.loads(shown)


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("serve app.py:classify --port 0 --grpc-port 0", "ray"),
        ("plan app.py:classify --cluster cluster.toml -o any.plan", "planner"),
        ("plan show any.plan", "planner"),
        ("cluster measure", "planner"),
        ("simulate compare --load 0.5 --requests 50 --picture any.png", "simulation"),
    ],
)
def test_what_needs_an_extra_says_which(core: Core, arguments: str, extra: str) -> None:
    shown = core.run(*arguments.split(), code=1)
    assert f"pip install 'dyorc-core[{extra}]'" in shown


def test_settings_that_need_an_extra_say_which(core: Core) -> None:
    serve = ("serve", "app.py:classify", "--in-process", "--port", "0", "--grpc-port", "0")
    assert "pip install 'dyorc-core[redis]'" in core.run(*serve, code=1, DYORC_STORE="redis://127.0.0.1:1/0")
    shown = core.run(*serve, code=1, DYORC_TELEMETRY__TRACES__ENDPOINT="http://127.0.0.1:1")
    assert "pip install 'dyorc-core[traces]'" in shown
