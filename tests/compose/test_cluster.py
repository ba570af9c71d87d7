"""`docker compose up` on a real engine: README's client line is answered, and any container may be killed.

The engine is the test's own. Where none can be started, this is skipped, and says why. `make compose-test` runs it alone, and
`python -m tests.compose` measures more, on an image with libraries of its own.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.compose import base_image, engine, images
from tests.compose.cluster import GATEWAYS, ORCHESTRATORS, ROOT, Cluster, cluster
from tests.compose.kills import HEAD, Kill, kill
from tests.compose.load import load
from tests.compose.upgrade import CUT, upgrade
from tests.compose.upgrade import HEAD as UPGRADE_HEAD

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1100)]  # more than the limits in here, which say what hangs

_README = (Path(__file__).parents[2] / "README.md").read_text()
_URLS = ("http://127.0.0.1:8000", "http://127.0.0.1:8010")
_NUM_CLIENTS = 4
_LIMIT_S = 900.0
"""For all that is done with the cluster."""
_READY_S = 90.0
"""A machine that needs longer than this to start the cluster (40 to 75 s are usual) has no time to replace its containers."""
_OVERLOADED = 80.0
"""Percent of a minute in which processes waited for a processor. Ray gives up nodes that take 30 s to start; a cluster that does
not start for another reason waits, and waiting takes no processor."""
_PACKAGES = "import importlib.metadata as m\nfor d in m.distributions(): print(d.metadata['Name'] + '==' + d.version)"
"""Prints all packages that Python finds."""
_NEXT = "dyorc:next"
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
        files = {"REDIS_IMAGE": images.REDIS, "DYORC_TOML": str(settings)}
        try:
            found = stack.enter_context(cluster(started.within(_LIMIT_S), override=libraries, **files))
            found.wait_until_healthy(*GATEWAYS)
            print(f"\nready {time.monotonic() - started_s:.1f} s after `docker compose up`")
            found.wait_until_healthy(*ORCHESTRATORS)
        except AssertionError as error:
            if (waited := _waited_for_a_processor()) > _OVERLOADED:
                pytest.skip(f"the cluster did not start on a machine that is too slow for it ({waited:.0f} % of waits): {error}")
            raise
        yield replace(found, ready_s=time.monotonic() - started_s)


def _waited_for_a_processor() -> float:
    """Returns in what percentage of the last minute processes waited for a processor; 0 if the kernel does not say."""
    pressure = Path("/proc/pressure/cpu")
    match = re.search(r"^some .*avg60=([\d.]+)", pressure.read_text() if pressure.exists() else "", re.MULTILINE)
    return float(match[1]) if match else 0.0


@pytest.fixture
def quick(running: Cluster) -> Cluster:
    """Returns the cluster, on a machine that has time to replace each of its containers."""
    if running.ready_s > _READY_S:
        pytest.skip(f"the cluster was ready after {running.ready_s:.0f} s: this machine is too slow")
    return running


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


def test_one_container_of_the_core_serves_without_ray_and_torch(running: Cluster) -> None:
    mounts = [f"--volume={ROOT / 'examples/first'}:/workflows:ro", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL"]
    command = ["dyorc", "serve", "app.py:classify", "--in-process", "--cells", "2", "--allow-open"]
    name = running.engine.docker("run", "--detach", *mounts, images.CORE, *command).strip()
    try:
        running.wait_until(lambda: _health(running, name) == "healthy", "the container of the core is healthy")
        for library in ("ray", "torch", "redis"):
            spec = running.engine.docker(
                "exec", name, "python", "-c", f"import importlib.util as u; print(u.find_spec('{library}'))"
            )
            assert spec.strip() == "None"
        packages = running.engine.docker("exec", name, "python", "-c", _PACKAGES)
        listed = json.loads(running.engine.docker("exec", name, "cat", "/usr/share/doc/dyorc/sbom.cdx.json"))["components"]
        assert sorted(packages.split()) == sorted(f"{each['name']}=={each['version']}" for each in listed)
        running.engine.docker("stop", name)
        assert running.engine.docker("inspect", "--format", "{{.State.ExitCode}}", name).strip() in ("0", "143")
    finally:
        running.engine.docker("rm", "--force", name)


def _health(running: Cluster, name: str) -> str:
    state = running.engine.docker("inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}", name).split()
    assert state[0] == "running", running.engine.docker("logs", name)
    return state[1]


def test_containers_have_no_rights_that_they_do_not_need(running: Cluster) -> None:
    for service in ("orchestrator", "gateway", "ray-worker", "ray-head"):
        command = "id -u; touch /opt/x || grep CapEff /proc/1/status"
        shown = running.engine.docker("exec", running.container(service), "bash", "-c", command)
        assert shown.split() == ["10001", "CapEff:", "0000000000000000"]


def _is_right(answer: Any) -> bool:
    (output,) = answer["outputs"]
    return output["shape"] == [10] and abs(sum(output["data"]) - 1) < 1e-3


_BODY = {"inputs": [{"name": "image", "shape": [64], "datatype": "FP32", "data": [float(number) for number in range(1, 65)]}]}


def test_a_cluster_is_upgraded_under_load_without_a_lost_request(quick: Cluster) -> None:
    images.build_next(quick.engine, _NEXT)
    with load(_URLS, "classify", _BODY, _is_right, _NUM_CLIENTS, quick.engine) as sent:
        steps = list(upgrade(quick, sent, _NEXT))
    print("\n".join(["", UPGRADE_HEAD, *(step.row for step in steps)]))
    assert {step.service: step.errors for step in steps if step.errors} == {}
    cut = {step.service: step.num_cut for step in steps if step.num_cut}
    assert cut.keys() <= set(GATEWAYS), "only a gateway that stops closes connections of clients"
    assert all(num_cut <= _NUM_CLIENTS for num_cut in cut.values()), "each client's next request was on its way, at most"
    upgraded = quick.engine.docker("ps", "--quiet", "--filter", "label=upgraded=yes").split()
    assert len(upgraded) == len(steps) == 6


def test_containers_are_killed_under_load_and_only_connections_to_a_dead_gateway_notice(quick: Cluster) -> None:
    done: list[Kill] = []
    with load(_URLS, "classify", _BODY, _is_right, _NUM_CLIENTS, quick.engine) as sent:
        leader = quick.leader()
        done.append(kill(quick, sent, leader, "leader"))
        assert quick.leader() != leader
        for service in ("redis", "ray-worker", "ray-head"):
            done.append(kill(quick, sent, service))
        cut = kill(quick, sent, "gateway")
    print("\n".join(["", HEAD, *(one.row for one in (*done, cut))]))
    assert {one.role: one.errors for one in done if one.errors} == {}
    assert len(cut.errors) <= _NUM_CLIENTS
    assert all(map(CUT.match, cut.errors)), cut.errors


def test_the_cluster_stops_by_itself_within_the_time_that_it_is_given(quick: Cluster) -> None:
    quick.leader()
    quick.wait_until_healthy(*ORCHESTRATORS, *GATEWAYS, "ray-worker", "ray-head")  # what is starting may hear no signal
    started_s = time.monotonic()
    quick.compose("stop")
    print(f"\nstopped in {time.monotonic() - started_s:.1f} s")
    names = ("--format", "{{.Name}} {{.State.ExitCode}}")
    ended = quick.engine.docker("inspect", *names, *quick.engine.docker("ps", "--all", "--quiet").split())
    by_force = [line for line in ended.splitlines() if line.endswith(" 137")]
    assert by_force == [], "Docker killed them after stop_grace_period"
