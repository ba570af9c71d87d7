"""`docker compose up` on a real engine: README's client line is answered, and any container may be killed.

The engine is the test's own. Where none can be started, this is skipped, and says why. `make compose-test` runs it alone, and
`python -m tests.compose` measures more, on an image with libraries of its own.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.compose import base_image, engine, images
from tests.compose.cluster import GATEWAYS, ORCHESTRATORS, Cluster, cluster
from tests.compose.kills import HEAD, Kill, kill
from tests.compose.load import load

pytestmark = pytest.mark.compose

_README = (Path(__file__).parents[2] / "README.md").read_text()
_URLS = ("http://127.0.0.1:8000", "http://127.0.0.1:8010")
_NUM_CLIENTS = 4
_LIMIT_S = 330.0
"""For all that is done with the cluster."""
_CUT = re.compile("ConnectError|ReadError|RemoteProtocolError")
_SETTINGS = """
workflows = ["/workflows/first/app.py:classify"]
[transport]
inline_limit_bytes = 0  # even the smallest tensor travels by shared memory, or by the network
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := engine.why_not() or base_image.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("images")
    settings = folder / "dyorc.toml"
    settings.write_text(_SETTINGS)
    with ExitStack() as stack:
        try:
            started = stack.enter_context(engine.engine())
            libraries = images.build(started, folder)
        except engine.NoEngineError as error:
            pytest.skip(str(error))
        started_s = time.monotonic()
        with cluster(started.within(_LIMIT_S), override=libraries, REDIS_IMAGE=images.REDIS, DYORC_TOML=str(settings)) as found:
            found.wait_until_healthy(*GATEWAYS)
            print(f"\nready {time.monotonic() - started_s:.1f} s after `docker compose up`")
            found.wait_until_healthy(*ORCHESTRATORS)
            yield found


def test_readmes_client_line_is_answered(running: Cluster) -> None:
    (line,) = re.findall(r"^\$ (curl localhost:8000/v2/models/classify/infer .*\n.*)$", _README, re.MULTILINE)
    (output,) = json.loads(_run(running, f"{line} --silent --show-error --fail"))["outputs"]
    assert output["shape"] == [10]
    assert sum(output["data"]) == pytest.approx(1.0, abs=1e-4)


def test_tensors_are_read_in_place_by_another_container(running: Cluster) -> None:
    command = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9100/metrics').read().decode())"
    metrics = running.engine.docker("exec", running.container(running.leader()), "python", "-c", command)
    moved = re.findall(r'^dyorc_moved_bytes_total\{.*tier="(\w+)".*\} (.*)$', metrics, re.MULTILINE)
    assert {tier for tier, num_bytes in moved if float(num_bytes)} == {"shm"}


def _run(running: Cluster, command: str) -> str:
    """Runs a command in the network in which the cluster publishes its ports."""
    return running.engine.run([*running.engine.inside, "bash", "-c", command])


def test_containers_have_no_rights_that_they_do_not_need(running: Cluster) -> None:
    for service in ("orchestrator", "gateway", "ray-worker", "ray-head"):
        command = "id -u; touch /opt/x || grep CapEff /proc/1/status"
        shown = running.engine.docker("exec", running.container(service), "bash", "-c", command)
        assert shown.split() == ["10001", "CapEff:", "0000000000000000"]


def _is_right(answer: Any) -> bool:
    (output,) = answer["outputs"]
    return output["shape"] == [10] and abs(sum(output["data"]) - 1) < 1e-3


def test_containers_are_killed_under_load_and_only_connections_to_a_dead_gateway_notice(running: Cluster) -> None:
    data = [float(number) for number in range(1, 65)]
    body = {"inputs": [{"name": "image", "shape": [64], "datatype": "FP32", "data": data}]}
    done: list[Kill] = []
    with load(_URLS, "classify", body, _is_right, _NUM_CLIENTS, running.engine) as sent:
        leader = running.leader()
        done.append(kill(running, sent, leader, "leader"))
        assert running.leader() != leader
        for service in ("redis", "ray-worker", "ray-head"):
            done.append(kill(running, sent, service))
        cut = kill(running, sent, "gateway")
    print("\n".join(["", HEAD, *(one.row for one in (*done, cut))]))
    assert {one.role: one.errors for one in done if one.errors} == {}
    assert len(cut.errors) <= _NUM_CLIENTS
    assert all(map(_CUT.match, cut.errors)), cut.errors
