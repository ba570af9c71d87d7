"""`dyorc replay` and `dyorc deploy --after-replay`, on the histories of a server."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

import dyorc
from dyorc.errors import ConflictError, DeployError, InvalidInputError, UnsupportedError
from dyorc.telemetry.histories.history_files import read_histories
from dyorc.testing import ServerProcess, serving
from tests.deadlines import TIMEOUT_S, wait_until
from tests.parted import cluster

_APP = """
import numpy as np
from jaxtyping import Float
import dyorc

@dyorc.program
def total(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch"]:
    return x.sum(axis=1)

@dyorc.program
def double(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return 2 * x

@dyorc.workflow
async def flow(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    if await dyorc.when(total(x), lambda value: value > THRESHOLD):
        return double(x)
    return x
"""
_NUM_REQUESTS = 10


class Recorded:
    """A server of the flow with the threshold 5, which has recorded requests."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def version(self, threshold: float) -> str:
        """Returns a target with another threshold."""
        file = self.folder / f"with_{threshold:g}.py".replace("-", "minus_")
        file.write_text(_APP.replace("THRESHOLD", str(threshold)))
        return f"{file}:flow"

    def replay(self, target: str, *options: str, records: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Runs the command."""
        command = [sys.executable, "-P", "-m", "dyorc.cli.main", "replay", str(records or self.folder / "histories"), target]
        return subprocess.run([*command, *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Recorded]:
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "app.py").write_text(_APP.replace("THRESHOLD", "5"))
    histories = folder / "histories"
    settings = {"DYORC_TELEMETRY__HISTORIES__FOLDER": str(histories), "DYORC_ENGINE__STEP_LIMIT_S": "1.5"}
    with serving(f"{folder}/app.py:flow", in_process=True, environment=settings) as server:
        with dyorc.Client(server.url) as client:
            for number in range(_NUM_REQUESTS):
                client.infer("flow", x=np.array([number, 0], np.float32))
        wait_until(lambda: _num_lines(histories) == _NUM_REQUESTS, "all histories are written")
        yield Recorded(server, folder)


def _num_lines(folder: Path) -> int:
    return sum(len(file.read_text().splitlines()) for file in folder.glob("*.jsonl"))


def test_the_exit_code_says_what_came_out(recorded: Recorded) -> None:
    same = recorded.replay(recorded.version(5))
    assert (same.returncode, same.stderr) == (0, "")
    assert "10 requests of flow replayed" in same.stdout
    other = recorded.replay(recorded.version(7))
    assert other.returncode == 1
    assert "double: 2 fewer" in other.stdout
    failed = recorded.replay(recorded.version(5), records=recorded.folder / "nowhere")
    assert failed.returncode == 2
    assert failed.stderr.startswith("dyorc: there is no file or folder")
    missing = recorded.replay(f"{recorded.folder}/app.py:nothing")
    assert missing.returncode == 2
    of_others = recorded.replay(f"{recorded.folder}/app.py:double")
    assert of_others.returncode == 2
    assert "no recorded request of 'double' was replayed: 10 because they are of other workflows" in of_others.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("place", ["    if await", "@dyorc.workflow"])
def test_a_signal_ends_a_replay_whose_version_never_ends_and_nothing_of_it_stays(
    recorded: Recorded, number: signal.Signals, place: str
) -> None:
    file = recorded.folder / "endless.py"
    indent = " " * (len(place) - len(place.lstrip()))
    endless = f"{indent}import os; print(os.getpid(), flush=True)\n{indent}while True: pass\n{place}"
    file.write_text(_APP.replace("THRESHOLD", "5").replace(place, endless))
    command = [sys.executable, "-P", "-m", "dyorc.cli.main", "replay", str(recorded.folder / "histories"), f"{file}:flow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        version = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == -number
        wait_until(lambda: not psutil.pid_exists(version), "the version's process has ended")
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("place", "code", "how"),
    [
        ("@dyorc.workflow", "import os; os._exit(0)", "ended with exit code 0"),
        ("    if await", "    import os; os._exit(0)", "ended with exit code 0"),
        ("    if await", "    import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("@dyorc.workflow", "import os; os.closerange(0, 100); os._exit(0)", "ended with exit code 0"),
    ],
)
def test_a_version_that_ends_its_process_is_no_success(recorded: Recorded, place: str, code: str, how: str) -> None:
    file = recorded.folder / "ending_here.py"
    file.write_text(_APP.replace("THRESHOLD", "5").replace(place, f"{code}\n{place}"))
    ended = recorded.replay(f"{file}:flow")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"dyorc: {file}:flow: the process that replayed requests {how}, and has no report\n"


@pytest.mark.parametrize("code", ["import os; os.close(0); os.close(1); os.close(2)", "import os; os.chdir('/')"])
def test_what_a_version_does_to_its_process_does_not_change_the_report(
    recorded: Recorded, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = recorded.folder / "meddling.py"
    file.write_text(f"{code}\n" + _APP.replace("THRESHOLD", "5"))
    monkeypatch.chdir(recorded.folder)
    same = recorded.replay("meddling.py:flow", records=Path("histories"))
    assert (same.returncode, same.stderr) == (0, "")
    assert "10 requests of flow replayed" in same.stdout


def test_a_version_that_cannot_be_imported_is_shown_with_its_lines(recorded: Recorded) -> None:
    file = recorded.folder / "unimportable_here.py"
    file.write_text("raise RuntimeError('no weights here')\n")
    failed = recorded.replay(f"{file}:flow")
    assert failed.returncode == 2
    assert f'File "{file}", line 1' in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith("dyorc: ")
    assert "no weights here" in failed.stderr.splitlines()[-1]


def test_json_has_all_figures(recorded: Recorded) -> None:
    report = json.loads(recorded.replay(recorded.version(3), "--json", "--examples", "1").stdout)
    assert (report["num_replayed"], report["num_same"], report["num_diverged"]) == (10, 8, 2)
    assert report["more_calls"] == {"double": 2}
    assert len(report["examples"]) == 1
    newest = json.loads(recorded.replay(recorded.version(3), "--json", "--max-requests", "5").stdout)
    assert (newest["num_replayed"], newest["num_same"]) == (5, 4)
    ran = json.loads(recorded.replay(recorded.version(3), "--json", "--run-programs").stdout)
    assert (ran["num_diverged"], ran["num_other_answers"]) == (0, 2)


def test_a_version_is_deployed_only_if_requests_go_as_they_went(recorded: Recorded) -> None:
    with dyorc.Client(recorded.server.url) as client:
        with pytest.raises(DeployError, match="2 of 10 recorded requests are different, at most 1 may be") as refused:
            client.deploy(recorded.version(7), version="higher", after_replay=1000, max_differences=1)
        assert "it was True, it is False" in str(refused.value)
        assert set(client.deployments()["flow"]["versions"]) == {"1"}
        changed = client.deploy(recorded.version(7), version="higher", after_replay=1000, max_differences=2)
        assert changed["replay"] == {"num_replayed": 10, "num_different": 2}
        assert changed["default"] == "higher"
        with pytest.raises(
            DeployError, match=r"no recorded request .* was replayed: 10 because their version is no longer served"
        ):
            client.deploy(recorded.version(7), fresh=True, after_replay=1000)
        client.rollback("flow")
        with pytest.raises(InvalidInputError, match="after_replay is -1, expected a whole number from 0"):
            client.deploy(recorded.version(7), after_replay=-1)


def test_differences_without_a_replay_are_refused(recorded: Recorded) -> None:
    with dyorc.Client(recorded.server.url) as client:
        with pytest.raises(InvalidInputError, match=r"max_differences is 3, and no requests .*: give after_replay, too"):
            client.deploy(recorded.version(7), max_differences=3)
        load = {"parameters": {"target": recorded.version(7), "max_differences": 3}}
        assert httpx.post(f"{recorded.server.url}/v2/repository/models/flow/load", json=load).status_code == 400
        known = {"parameters": {"version": "1", "after_replay": 3}}
        answer = httpx.post(f"{recorded.server.url}/v2/repository/models/flow/load", json=known)
        assert (answer.status_code, "name its target" in answer.text) == (400, True)
    command = [sys.executable, "-P", "-m", "dyorc.cli.main", "deploy", "app.py:flow", "--allow-differences", "3"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert refused.returncode != 0
    assert "give --after-replay NUMBER, too" in refused.stderr


def test_what_does_not_fit_is_refused_without_a_replay(recorded: Recorded) -> None:
    """Its workflow would never end in a replay."""
    file = recorded.folder / "misfit.py"
    endless = _APP.replace("THRESHOLD", "5").replace("    if await", "    while True: pass\n    if await")
    with dyorc.Client(recorded.server.url) as client:
        file.write_text(endless.replace('flow(x: Float[np.ndarray, "n"])', 'flow(y: Float[np.ndarray, "n"])'))
        with pytest.raises(ConflictError, match="its inputs are y"):
            client.deploy(f"{file}:flow", version="misfit", after_replay=10)
        file.write_text(endless)
        with pytest.raises(ConflictError, match="exists, with other code"):
            client.deploy(f"{file}:flow", version="1", after_replay=10)
        file.write_text(endless.replace("@dyorc.program\ndef double", "@dyorc.program(pure=False)\ndef double"))
        with pytest.raises(ConflictError, match="its program 'double' has effects"):
            client.deploy(f"{file}:flow", version="misfit", shadow=0.5, after_replay=10)
        assert set(client.deployments()["flow"]["versions"]) == {"1"}


def test_requests_of_code_that_left_do_not_count_though_the_name_of_its_version_comes_again(tmp_path: Path) -> None:
    target, histories = f"{tmp_path}/app.py:flow", tmp_path / "histories"
    settings = {"DYORC_TELEMETRY__HISTORIES__FOLDER": str(histories)}
    for threshold, num_lines in ((5, 4), (1, 7)):
        (tmp_path / "app.py").write_text(_APP.replace("THRESHOLD", str(threshold)))
        with serving(target, in_process=True, environment=settings) as server, dyorc.Client(server.url) as client:
            for number in range(4 if threshold == 5 else 3):
                client.infer("flow", x=np.array([number, 0], np.float32))
            wait_until(lambda expected=num_lines: _num_lines(histories) == expected, "all histories are written")
            changed = client.deploy(target, version="again", fresh=True, after_replay=1000)
    assert changed["replay"] == {
        "num_replayed": 3, "num_different": 0, "num_not_replayed": {"their version is no longer served": 4},
    }  # fmt: skip
    command = [sys.executable, "-P", "-m", "dyorc.cli.main", "replay", str(histories), target, "--json", "--version", "1"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout)
    assert sorted(report["versions"].values()) == [3, 4]
    assert all(name.startswith("1 (code ") for name in report["versions"])


def test_code_that_ends_its_process_is_refused(recorded: Recorded) -> None:
    file = recorded.folder / "ending.py"
    file.write_text(_APP.replace("THRESHOLD", "5").replace("    if await", "    import os; os._exit(3)\n    if await"))
    ended = pytest.raises(DeployError, match="the process that replayed requests ended with exit code 3")
    with dyorc.Client(recorded.server.url) as client, ended:
        client.deploy(f"{file}:flow", after_replay=10)


def test_a_version_that_never_ends_is_refused_after_the_servers_own_limit(recorded: Recorded) -> None:
    file = recorded.folder / "endless_here.py"
    file.write_text(_APP.replace("THRESHOLD", "5").replace("    if await", "    while True: pass\n    if await"))
    with dyorc.Client(recorded.server.url) as client:
        before = client.deployments()
        with pytest.raises(DeployError, match="its workflow was interrupted on 3 requests") as refused:
            client.deploy(f"{file}:flow", version="endless", after_replay=10)
        assert "ran for more than 1.5 s" in str(refused.value)
        assert client.deployments() == before


@pytest.mark.parametrize("code", ["import no_such_module_anywhere", "raise RuntimeError('no weights here')", "def broken("])
def test_a_version_whose_import_fails_is_refused(recorded: Recorded, code: str) -> None:
    file = recorded.folder / "unimportable.py"
    file.write_text(f"{code}\n{_APP.replace('THRESHOLD', '5')}")
    with dyorc.Client(recorded.server.url) as client:
        before = client.deployments()
        with pytest.raises(DeployError, match=r"no_such_module_anywhere|no weights here|never closed"):
            client.deploy(f"{file}:flow", version="broken", after_replay=10)
        assert client.deployments() == before


def test_the_command_line_reads_the_limit_of_steps(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYORC_ENGINE__STEP_LIMIT_S", "0.2")
    file = recorded.folder / "endless_there.py"
    file.write_text(_APP.replace("THRESHOLD", "5").replace("    if await", "    while True: pass\n    if await"))
    assert "ran for more than 0.2 s" in recorded.replay(f"{file}:flow").stdout


def test_a_deploy_says_which_requests_could_not_be_replayed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(_APP.replace("THRESHOLD", "5"))
    target, histories = f"{tmp_path}/app.py:flow", tmp_path / "histories"
    settings = {"DYORC_TELEMETRY__HISTORIES__FOLDER": str(histories)}
    with serving(target, in_process=True, environment=settings) as server, dyorc.Client(server.url) as client:
        for number in range(3):
            client.infer("flow", x=np.array([number, 0], np.float32))
        wait_until(lambda: _num_lines(histories) == 3, "all histories are written")
        (file,) = histories.glob("*.jsonl")
        first, *others = file.read_text().splitlines(keepends=True)
        os.mkfifo(histories / "0.jsonl")
        history = json.loads(first) | {"refusal": "program 'chat' keeps residents"}
        file.write_text(json.dumps(history) + "\n" + "".join(others))
        changed = client.deploy(target, version="2", fresh=True, after_replay=10)
    assert changed["replay"] == {
        "num_replayed": 2, "num_different": 0, "num_not_replayed": {"program 'chat' keeps residents": 1},
        "num_damaged": 1,
    }  # fmt: skip


def test_a_server_without_histories_says_so(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(_APP.replace("THRESHOLD", "5"))
    target = f"{tmp_path}/app.py:flow"
    refused = pytest.raises(UnsupportedError, match="this server has no recorded requests to replay")
    with serving(target, in_process=True) as server, dyorc.Client(server.url) as client, refused:
        client.deploy(target, version="2", fresh=True, after_replay=10)


def test_a_gateway_deploys_after_a_replay_of_what_its_orchestrator_has_recorded(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(_APP.replace("THRESHOLD", "5"))
    histories = tmp_path / "histories"
    settings = {"DYORC_TELEMETRY__HISTORIES__FOLDER": str(histories)}
    with (
        cluster() as parts,
        parts.orchestrator([f"{tmp_path}/app.py:flow"], **settings) as orchestrator,
        parts.gateway(**settings) as gateway,
    ):
        gateway.wait_for("histories_recorded_elsewhere")
        gateway.wait_until_ready()
        recorded = Recorded(orchestrator, tmp_path)
        with dyorc.Client(gateway.url) as client:
            for number in range(_NUM_REQUESTS):
                client.infer("flow", x=np.array([number, 0], np.float32))
            wait_until(lambda: _num_lines(histories) == _NUM_REQUESTS, "all histories are written")
            assert len({history.request_id for history in read_histories(histories)} - {""}) == _NUM_REQUESTS
            with pytest.raises(DeployError, match="2 of 10 recorded requests are different, at most 0 may be"):
                client.deploy(recorded.version(7), version="higher", after_replay=1000)
            changed = client.deploy(recorded.version(7), version="higher", after_replay=1000, max_differences=2)
        assert changed["replay"] == {"num_replayed": 10, "num_different": 2}
