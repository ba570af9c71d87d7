"""A server from a `dyorc.toml`: its workflows, settings and options of programs; flags come before it."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dyorc.testing import START_TIMEOUT_S, ServerProcess
from tests import oip
from tests.leaks import no_leaks
from tests.server_process import COMMAND, client_of

_WORKFLOWS = Path(__file__).parents[1] / "workflows"
_TIMEOUT_S = 300

_SEEN = """
import numpy as np
from jaxtyping import Float
import dyorc

@dyorc.program
def seen(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    return np.full_like(x, seen.options.max_batch_size)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, and workflows beside it."""
    (tmp_path / "arithmetic.py").symlink_to(_WORKFLOWS / "arithmetic.py")
    (tmp_path / "dyorc.toml").write_text(
        'workflows = ["arithmetic.py:quadruple", "arithmetic.py:double"]\nin_process = true\n'
        "[gateway]\nport = 1\ngrpc = false\n[telemetry]\npage = false\n"
        "[programs.double]\nmax_batch_size = 7\nmax_queued_calls = 70\n"
    )
    return tmp_path


@contextmanager
def _serving(folder: Path, arguments: Sequence[str], environment: dict[str, str] | None = None) -> Iterator[ServerProcess]:
    with no_leaks(), ServerProcess([COMMAND, "serve", *arguments], environment=environment, folder=folder) as server:
        server.wait_until_ready(START_TIMEOUT_S)
        yield server


def _limits(server: ServerProcess) -> tuple[str, int]:
    with client_of(server) as client:
        config = client.get("/v2/models/double/config").json()
        body = oip.json_body({"x": np.ones(4, np.float32)})
        answer = client.post("/v2/models/quadruple/infer", content=body.content)
        np.testing.assert_array_equal(oip.read(answer).outputs["output"], np.full(4, 4, np.float32))
        assert client.get("/ui").status_code == 404
    policy = config["dynamic_batching"]["default_queue_policy"]
    return config["parameters"]["dyorc_max_batch_size"]["string_value"], policy["max_queue_size"]


def test_a_cell_serves_what_the_file_says(folder: Path) -> None:
    with _serving(folder, ["--port", "0"]) as server:
        assert "Settings from dyorc.toml" in server.output
        assert _limits(server) == ("7", 70)


def test_supervised_cells_do_so_too_and_the_environment_comes_first(folder: Path) -> None:
    environment = {"DYORC_CONFIG": str(folder / "dyorc.toml"), "DYORC_PROGRAMS__DOUBLE__MAX_BATCH_SIZE": "9"}
    with _serving(folder.parent, ["--port", "0", "--cells", "2"], environment) as server:
        assert _limits(server) == ("9", 70)


def test_replicas_on_ray_have_the_options_too(tmp_path: Path) -> None:
    (tmp_path / "options_seen.py").write_text(_SEEN)
    (tmp_path / "dyorc.toml").write_text(
        'workflows = ["options_seen.py:seen"]\n[programs.seen]\nmax_batch_size = 7\nnum_replicas = 2\nnum_cpus = 0.25\n'
    )
    with _serving(tmp_path, ["--port", "0"]) as server, client_of(server) as client:
        assert client.get("/v2/models/seen/config").json()["instance_group"][0]["count"] == 2
        body = oip.json_body({"x": np.ones(4, np.float32)})
        answer = client.post("/v2/models/seen/infer", content=body.content)
        np.testing.assert_array_equal(oip.read(answer).outputs["output"], np.full(4, 7, np.float32))


def test_a_program_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    with (folder / "dyorc.toml").open("a") as file:
        file.write("[programs.duoble]\nnum_replicas = 2\n")
    found = subprocess.run([COMMAND, "serve"], cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert found.returncode == 1
    assert found.stderr == "dyorc: unknown program 'duoble' in the settings; known programs: ['double']\n"


def test_errors_are_printed_before_anything_starts(folder: Path) -> None:
    (folder / "dyorc.toml").write_text("[gateway]\nprot = 1\nport = 'x'\n")
    found = subprocess.run(
        [sys.executable, "-m", "dyorc.cli.main", "serve"], cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    assert found.returncode == 1
    assert sorted(line.removeprefix("dyorc: ").split(" ")[0] for line in found.stderr.splitlines()) == [
        "dyorc.toml:2:", "dyorc.toml:3:",
    ]  # fmt: skip


def test_the_settings_in_force_are_printed_with_the_flags(folder: Path) -> None:
    found = subprocess.run(
        [COMMAND, "serve", "--port", "5", "--on-ray", "--print-settings"],
        cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S,
    )  # fmt: skip
    lines = {line.split(" ")[0]: " ".join(line.split()) for line in found.stdout.splitlines()}
    assert lines["gateway.port"] == "gateway.port = 5 # --port"
    assert lines["in_process"] == "in_process = false # --on-ray"
    assert lines["gateway.grpc"] == "gateway.grpc = false # dyorc.toml:5"
    assert lines["programs.double.max_batch_size"] == "programs.double.max_batch_size = 7 # dyorc.toml:9"
    assert lines["jobs.lease_s"] == "jobs.lease_s = 5.0 # default"
