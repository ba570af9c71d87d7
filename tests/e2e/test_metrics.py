"""`/metrics` of two cells: scraped by a real Prometheus, and while one of them is killed."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dyorc.system.ports import port_of, reserve
from dyorc.testing import ServerProcess
from tests import oip
from tests.deadlines import wait_until
from tests.server_process import client_of, despite_kills, serving, target

X = np.array([1, 2, 3, 4], np.float32)
_PROMETHEUS = shutil.which("prometheus")
_CONFIGURATION = Path(__file__).parents[2] / "deploy" / "prometheus"
_OF_A_BUSY_MACHINE = {"DyOrcEventLoopLags"}
"""Alerts that may be pending although nothing is wrong with the server."""


class Cells:
    """A server of two cells, and the port on which both show their metrics.

    Attributes:
        num_sent: Requests that were answered.
    """

    def __init__(self, server: ServerProcess, metrics_port: int) -> None:
        self.server = server
        self.metrics_address = f"127.0.0.1:{metrics_port}"
        self.num_sent = 0

    def send(self, number: int) -> None:
        """Sends requests, each on a new connection, so that both cells get some."""
        body = oip.json_body({"x": X}).content
        for _ in range(number):
            with client_of(self.server) as client:
                client.post("/v2/models/quadruple/infer", content=body).raise_for_status()
        self.num_sent += number

    def scrape(self) -> dict[str, float]:
        """Returns all counters, by name and labels."""
        text = httpx.get(f"http://{self.metrics_address}/metrics", trust_env=False, timeout=60).text
        return {
            f"{sample.name}{sorted(sample.labels.items())}": sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if family.type in ("counter", "histogram") or sample.name == "dyorc_cells"
        }

    def live(self) -> dict[str, float]:
        """Returns the totals that the page shows."""
        with client_of(self.server) as client:
            found = client.get("/live").json()
        (workflow,), program = found["workflows"].values(), found["programs"]["double"]
        batched = sum(int(size) * number for size, number in program["batch_sizes"].items())
        totals = {"requests": workflow["requests_total"], "calls": program["calls_total"], "batches": program["batches_total"]}
        return totals | {"batched calls": batched / 2} | program["form_reasons"]  # a request calls it twice

    def pids(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.server.process.pid).children()]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    with reserve("127.0.0.1", 0) as port:
        settings = {
            "DYORC_TELEMETRY__METRICS_PORT": str(port_of(port)),
            "DYORC_CELLS__RESTART_DELAY_S": "0.1",
            "DYORC_STORE": f"sqlite:///{tmp_path_factory.mktemp('store') / 'jobs.db'}",
        }
        with serving([target("arithmetic", "quadruple"), "--cells", "2"], in_process=True, **settings) as server:
            found = Cells(server, port_of(port))
            wait_until(lambda: found.scrape()["dyorc_cells[]"] == 2, "both cells answer")
            yield found


def test_the_port_for_metrics_shows_the_same_as_the_route(cells: Cells) -> None:
    cells.send(5)
    with client_of(cells.server) as client:
        shown = client.get("/metrics").text
    assert f'dyorc_requests_total{{outcome="ok",workflow="quadruple"}} {float(cells.num_sent)}\n' in shown
    assert cells.scrape()["dyorc_requests_total[('outcome', 'ok'), ('workflow', 'quadruple')]"] == cells.num_sent


def test_no_counter_goes_back_while_a_cell_is_killed_and_comes_again(cells: Cells) -> None:
    cells.send(20)
    before = cells.scrape()
    said = len(cells.server.lines)
    os.kill(cells.pids()[0], signal.SIGKILL)
    last = before
    live = despite_kills(cells.live)
    while "is ready again" not in "".join(cells.server.lines[said:]) or last["dyorc_cells[]"] < 2:
        found = despite_kills(cells.scrape)
        counted = [name for name in last if name != "dyorc_cells[]"]
        assert {name: (last[name], found.get(name)) for name in counted if found.get(name, -1) < last[name]} == {}
        last = found
        now = despite_kills(cells.live)
        assert {name: (live[name], now.get(name)) for name in live if now.get(name, -1) < live[name]} == {}
        live = now
    assert live["requests"] == live["batched calls"] == cells.num_sent
    assert last["dyorc_cell_starts_total[]"] == before["dyorc_cell_starts_total[]"] + 1
    assert last["dyorc_requests_total[('outcome', 'ok'), ('workflow', 'quadruple')]"] == cells.num_sent


@contextlib.contextmanager
def prometheus(address: str, folder: Path) -> Iterator[str]:
    """Runs a Prometheus with the configuration that we recommend, which scrapes more often; yields its URL."""
    assert _PROMETHEUS is not None
    shutil.copytree(_CONFIGURATION, folder / "configuration")
    file = folder / "configuration" / "prometheus.yml"
    configuration = yaml.safe_load(file.read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "200ms"}
    (job,) = configuration["scrape_configs"]
    job["static_configs"] = [{"targets": [address]}]
    file.write_text(yaml.safe_dump(configuration))
    command = [
        _PROMETHEUS, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: _listening(process.pid), "Prometheus listens")
            yield f"http://127.0.0.1:{_listening(process.pid)}"
        finally:
            process.kill()


def _listening(pid: int) -> int | None:
    found = [one.laddr.port for one in psutil.Process(pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return found[0] if found else None


def _ask(url: str, path: str, **parameters: str) -> Any:
    with contextlib.suppress(httpx.TransportError):
        found = httpx.get(f"{url}/api/v1/{path}", params=parameters, trust_env=False, timeout=60)
        if found.is_success:
            return found.json()["data"]
    return None


@pytest.mark.skipif(_PROMETHEUS is None, reason="prometheus is not installed (Debian: apt install prometheus)")
def test_prometheus_scrapes_the_server_and_knows_how_many_requests_it_has_answered(cells: Cells, tmp_path: Path) -> None:
    with prometheus(cells.metrics_address, tmp_path) as url:

        def value_of(query: str) -> float | None:
            found = _ask(url, "query", query=query)
            return float(found["result"][0]["value"][1]) if found and found["result"] else None

        def alerts() -> set[str]:
            return {one["labels"]["alertname"] for one in _ask(url, "alerts")["alerts"]}

        cells.send(17)
        query = 'sum(dyorc_requests_total{workflow="quadruple",outcome="ok"})'
        wait_until(lambda: value_of(query) == cells.num_sent, "Prometheus has scraped the last request")
        # a scrape may take no longer than the interval, so on a busy machine some fail
        wait_until(lambda: value_of('up{job="dyorc"}') == 1, "Prometheus sees that the server is up")
        wait_until(lambda: [one["lastError"] for one in _ask(url, "targets")["activeTargets"]] == [""], "a scrape has no error")
        queued = 'dyorc_call_queue_seconds_count{program="double"}'
        wait_until(lambda: value_of(queued) == 2 * cells.num_sent, "both calls of each request have queued")
        metadata = _ask(url, "metadata")
        assert metadata["dyorc_requests"][0]["type"] == "counter"  # so does OpenMetrics name it
        assert metadata["dyorc_request_duration_seconds"][0]["type"] == "histogram"
        wait_until(lambda: value_of("workflow:dyorc_requests:rate5m") is not None, "a recording rule has a value")
        wait_until(lambda: alerts() - _OF_A_BUSY_MACHINE == set(), "no alert is pending")
