"""`dyorc profile` on a loaded cell."""

import subprocess
import threading
from pathlib import Path

import pytest

from dyorc.cli.profile import Process, processes_of
from dyorc.testing import ServerProcess
from tests.server_process import COMMAND, client_of, serving, target

GOOD = {"inputs": [{"name": "x", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}


def _may_trace() -> bool:
    path = Path("/proc/sys/kernel/yama/ptrace_scope")
    return not path.exists() or path.read_text().strip() == "0" or _is_root()


def _is_root() -> bool:
    return "CapEff:\t0000000000000000" not in Path("/proc/self/status").read_text()


def _profile(server: ServerProcess, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [COMMAND, "profile", "--seconds", "2", "--url", server.url, "--output", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.skipif(not _may_trace(), reason="this system does not let a process look into another")
def test_a_loaded_cell_has_a_flame_graph_and_its_requests_stages(tmp_path: Path) -> None:
    with serving([target("arithmetic", "quadruple")], in_process=True) as server:
        done = threading.Event()

        def load() -> None:
            with client_of(server) as client:
                while not done.is_set():
                    client.post("/v2/models/quadruple/infer", json=GOOD).raise_for_status()

        loader = threading.Thread(target=load)
        loader.start()
        try:
            ended = _profile(server, tmp_path / "out")
        finally:
            done.set()
            loader.join()
        with client_of(server) as client:
            pid = client.get("/status").json()["pid"]
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "compute" in ended.stdout
    graph = (tmp_path / "out" / f"server-{pid}.svg").read_text()
    assert "handle (dyorc/engine/engine.py" in graph, "the engine ran"
    page = (tmp_path / "out" / "index.html").read_text()
    assert f"server-{pid}.svg" in page
    assert "compute" in page


def test_processes_are_named_once() -> None:
    cells = {"cells": [{"cell": 0, "pid": 7}, {"cell": 1, "pid": None}], "programs": {"p": {"replicas": {"a": {"pid": 7}}}}}
    assert processes_of(cells) == [Process("cell 0", 7)]
    replicas = {"pid": 1, "programs": {"p": {"replicas": {"p#a": {"pid": 2}, "p#b": {"pid": 3}}}}}
    assert processes_of(replicas) == [Process("server", 1), Process("p 0", 2), Process("p 1", 3)]
