"""`dyorc doctor` on a machine that is really broken: limits, file systems, ports, libraries and servers as it says."""

import http.server
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dyorc.testing import ServerProcess
from dyorc.version import version
from tests.certificates import Authority
from tests.server_process import serving, target

_MAIN = [sys.executable, "-m", "dyorc.cli.main", "doctor"]


class Report(NamedTuple):
    """What `dyorc doctor --json` said."""

    exit_code: int
    findings: list[dict[str, str]]

    def of(self, area: str, level: str) -> list[dict[str, str]]:
        """Returns the findings of an area on a level."""
        return [finding for finding in self.findings if (finding["area"], finding["level"]) == (area, level)]

    def one(self, area: str, level: str, text: str) -> dict[str, str]:
        """Returns the finding of an area on a level that has a text in it."""
        matching = [finding for finding in self.of(area, level) if text in finding["text"]]
        assert len(matching) == 1, self.findings
        return matching[0]


def examined(*options: str, before: str = "", folder: Path | None = None, **environment: str) -> Report:
    """Runs the command, in a shell after some commands."""
    script = f"{before} exec {shlex.join([*_MAIN, '--json', *options])}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=folder, env={**os.environ, **environment}, check=False
    )
    assert done.stderr == "", done.stderr
    answer = json.loads(done.stdout)
    assert answer["num_errors"] == sum(finding["level"] == "error" for finding in answer["findings"])
    assert all(finding["cure"] for finding in answer["findings"] if finding["level"] != "ok")
    return Report(done.returncode, answer["findings"])


def examined_with_mounts(commands: str, *options: str, **environment: str) -> Report:
    """Runs the command where other file systems are mounted, which nobody else sees."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount file systems")
    inner = shlex.quote(f"{commands} && exec {shlex.join([*_MAIN, '--json', *options])}")
    return examined(before=f"exec unshare --mount bash -c {inner};", **environment)


def test_a_machine_that_serves_has_no_error(tmp_path: Path) -> None:
    report = examined(folder=tmp_path, DYORC_GATEWAY__PORT="0", XDG_STATE_HOME=str(tmp_path))
    assert report.exit_code == 0
    assert not [finding for finding in report.findings if finding["level"] == "error"]
    assert report.one("versions", "ok", f"DyOrc {version()}")
    assert report.one("settings", "ok", f"jobs are stored in {tmp_path}/dyorc/jobs.sqlite")
    areas = list(dict.fromkeys(finding["area"] for finding in report.findings))
    assert areas == ["versions", "extras", "machine", "shared memory", "settings", "network", "Ray", "GPUs", "server"]


def test_a_low_limit_of_descriptors_is_a_warning_with_its_cure() -> None:
    report = examined(before="ulimit -n 256;")
    assert "ulimit" in report.one("machine", "warning", "256 open files")["cure"]


def test_more_threads_than_processors_is_a_warning() -> None:
    assert examined(OMP_NUM_THREADS="999").one("machine", "warning", "OMP_NUM_THREADS is 999")


def test_dockers_default_of_shared_memory_is_a_warning_and_a_full_one_an_error() -> None:
    mount = "mount -t tmpfs -o size=64m none /dev/shm"
    assert "--shm-size" in examined_with_mounts(mount).one("shared memory", "warning", "the default of Docker")["cure"]
    full = examined_with_mounts(f"{mount} && head -c 64M /dev/zero > /dev/shm/filling")
    assert full.exit_code == 1
    assert "larger" in full.one("shared memory", "error", "No space left")["cure"]


def test_a_folder_of_arenas_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    report = examined(DYORC_TRANSPORT__ARENA_FOLDER=f"{tmp_path}/none")
    assert "DYORC_TRANSPORT__ARENA_FOLDER" in report.one("shared memory", "error", f"{tmp_path}/none")["cure"]


def test_a_small_folder_for_temporary_files_is_a_warning(tmp_path: Path) -> None:
    report = examined_with_mounts(f"mount -t tmpfs -o size=20m none {tmp_path}", TMPDIR=str(tmp_path))
    assert "TMPDIR" in report.one("machine", "warning", f"{tmp_path} has 20 MiB left")["cure"]


def test_a_port_that_is_taken_names_the_process_that_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        report = examined(DYORC_GATEWAY__PORT=str(taken.getsockname()[1]), DYORC_GATEWAY__GRPC="false")
    assert f"process {os.getpid()} " in report.one("network", "warning", "cannot be had")["text"]


def test_no_loopback_is_an_error() -> None:
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a network namespace")
    inner = shlex.quote(f"exec {shlex.join([*_MAIN, '--json'])}")
    report = examined(before=f"exec unshare --net bash -c {inner};")
    assert "ip link" in report.one("network", "error", "127.0.0.1")["cure"]


def test_settings_that_cannot_be_read_are_errors_and_the_rest_is_checked_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "dyorc.toml").write_text("[gateway]\nprot = 8000\n")
    report = examined(folder=tmp_path)
    assert report.exit_code == 1
    assert report.one("settings", "error", "dyorc.toml:2")
    assert report.of("network", "ok")
    assert examined(DYORC_GATWAY__PORT="1").one("settings", "error", "DYORC_GATWAY__PORT")


def test_files_that_settings_name_are_looked_at(tmp_path: Path) -> None:
    keys = examined(DYORC_GATEWAY__KEYS_FILE=f"{tmp_path}/none", DYORC_GATEWAY__TLS_CERTIFICATE_FILE=str(tmp_path))
    assert keys.exit_code == 1
    assert keys.one("settings", "error", f"gateway.keys_file names {tmp_path}/none, which is not there")
    assert keys.one("settings", "error", f"gateway.tls_certificate_file names {tmp_path}, which is a folder")


@pytest.mark.parametrize(
    ("variable", "value", "area"),
    [("DYORC_STORE", "redis://u:p@[bad", "settings"), ("DYORC_GATEWAY__PORT", "65535", "network")],
)
def test_odd_values_are_not_taken_for_a_fault_of_the_command(variable: str, value: str, area: str) -> None:
    report = examined(**{variable: value})
    assert report.of(area, "error")
    assert not [finding for finding in report.findings if "bug" in finding["cure"]]
    assert "u:p" not in json.dumps(report.findings)


def test_a_redis_that_does_not_answer_is_an_error_without_its_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    report = examined(DYORC_STORE=f"redis://:secret@127.0.0.1:{port}/0")
    assert report.one("settings", "error", f"127.0.0.1:{port}")
    assert "secret" not in json.dumps(report.findings)


def test_a_library_that_is_missing_comes_with_the_command_that_installs_it(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    def hidden(name: str) -> str:
        files = metadata.files(name)
        assert files is not None
        folder = next(Path(str(file.locate())).parent for file in files if file.name == "METADATA")
        return f"mount --bind {empty} {folder}"

    without_ray = examined_with_mounts(hidden("ray"))
    assert "pip install 'dyorc-core[ray]'" in without_ray.one("extras", "ok", "ray is not installed")["text"]
    assert "--in-process" in without_ray.one("Ray", "ok", "not installed")["text"]
    without_json = examined_with_mounts(hidden("orjson"))
    assert without_json.exit_code == 1
    assert without_json.one("versions", "error", "orjson is missing")["cure"] == "pip install --upgrade dyorc-core"


def test_a_system_that_shows_no_processes_is_examined_all_the_same() -> None:
    report = examined_with_mounts("mount -t tmpfs none /proc")
    assert not [finding for finding in report.findings if "failed" in finding["text"]]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """Serves without Ray."""
    with serving([target("arithmetic", "double")], in_process=True) as running:
        yield running


def test_a_server_that_runs_is_asked_for_its_version_its_clock_and_whether_it_is_ready(server: ServerProcess) -> None:
    report = examined("--url", server.url, DYORC_GATEWAY__PORT="0")
    texts = [finding["text"] for finding in report.of("server", "ok")]
    assert texts == [
        f"{server.url} is DyOrc {version()}, as here", "its clock and this one agree", "it is ready", "it asks for no key",
    ]  # fmt: skip


def test_a_port_without_a_server_and_one_of_something_else_are_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert examined("--url", f"127.0.0.1:{port}").one("server", "error", "Connection refused")["cure"]
    with http.server.HTTPServer(("127.0.0.1", 0), _Pages) as pages:
        threading.Thread(target=pages.handle_request).start()
        report = examined("--url", f"127.0.0.1:{pages.server_port}")
    assert report.one("server", "error", "does not answer as a server of models")


class _Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def test_a_certificate_is_trusted_by_its_authority_and_its_end_is_near(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("server")
    files = {"DYORC_GATEWAY__TLS_CERTIFICATE_FILE": str(own.certificate), "DYORC_GATEWAY__TLS_KEY_FILE": str(own.key)}
    with serving([target("arithmetic", "double")], in_process=True, **files) as server:
        url = server.url.replace("http://", "https://")
        strange = examined("--url", url)
        assert strange.exit_code == 1
        assert "--ca" in strange.one("server", "error", "no trusted connection")["cure"]
        trusted = examined("--url", url, "--ca", str(authority.own.certificate))
        assert trusted.one("server", "warning", "its certificate is valid until")  # it is made for two days
