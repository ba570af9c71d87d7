"""The cluster of docker-compose.yml on an engine of its own: two gateways, two orchestrators, Redis, each in a container.

Programs run in the orchestrators, and Ray's two containers sleep: four Ray nodes take the two cores of a small machine for
themselves, and what replicas on Ray survive is another shape's.
"""

import json
import os
import random
import re
import tempfile
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from tests.compose import base_image, images
from tests.compose.cluster import GATEWAYS, ORCHESTRATORS, ROOT, Cluster, cluster
from tests.compose.engine import NoEngineError, engine, why_not
from tests.deadlines import wait_until
from tests.link_relay import enter_namespace
from tests.storm import faults
from tests.storm.contract import Entrance, Fault, Shape
from tests.storm.members import BAD_LINES, NUM_STARTS, FillableFolder
from tests.storm.parted import LEASE_S, STORE_TIMEOUT_S
from tests.storm.turns import WHOLE
from tests.workflows import stormy

_TARGETS = [f"/workflows/stormy.py:{workflow.name}" for workflow in stormy.ALL]
_SETTINGS = f"""
workflows = {json.dumps(_TARGETS)}
[jobs]
max_attempts = 100  # an innocent job may be running each time that its server is killed
[cluster]
lease_s = {LEASE_S}
[transport]
inline_limit_bytes = 16384
"""
_SUBNET = "10.88.7"
"""Of the cluster's network, which is in a namespace of the engine's."""
_ADDRESSES: dict[str, str] = {service: f"{_SUBNET}.{at}" for at, service in enumerate(("redis", *ORCHESTRATORS, *GATEWAYS), 10)}
"""Fixed, so that what was cut off comes back under its own."""
_HEALTH: dict[str, tuple[int, str]] = {
    **dict.fromkeys(ORCHESTRATORS, (9100, "/v2/health/live")),
    **dict.fromkeys(GATEWAYS, (8000, "/v2/health/ready")),
}
_USER = 10001
"""As whom the containers run."""
_MAX_AWAY_S = 1.2
_RESTART_S = 30
_ENDS_WELL = ("0", "143")
_READY_S = 5.0
_TAIL_LINES = 30


class Containers(Shape):
    """A cluster of containers."""

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(name, chance)
        self._cluster: Cluster | None = None
        self._members: dict[str, "_Container"] = {}
        self._tail: list[str] = []

    @property
    def why_not(self) -> str:
        return why_not() or base_image.why_not()

    def start(self) -> None:
        stack = self._stack
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="t-", dir="/tmp")))
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="t-", dir="/tmp")))
        os.chown(self.folder, _USER, _USER)
        try:
            running = stack.enter_context(engine())
            libraries = images.build(running, work)
        except NoEngineError as error:
            raise AssertionError(str(error)) from None
        (work / "dyorc.toml").write_text(_SETTINGS)
        variables = {
            "DYORC_TOML": str(work / "dyorc.toml"),
            "DYORC_WORKFLOWS": str(ROOT / "tests/workflows"),
            "DYORC_TENSORS_SIZE": "64m",
            "REDIS_IMAGE": images.REDIS,
        }
        self._cluster = stack.enter_context(cluster(running, override=self._override(libraries), **variables))
        self.entrances = [
            Entrance(f"http://{_ADDRESSES[service]}:8000", entered=lambda: _entered(running.namespace)) for service in GATEWAYS
        ]
        for service in _ADDRESSES:
            self._members[service] = _Container(self._cluster, service)
        for member in self._members.values():
            member.wait()
        start_s = self._members["standby"].age_s  # the last that is started
        for member in self._members.values():
            member.has_started(start_s)
        arenas = running.docker("volume", "ls", "--quiet", "--filter", "name=tensors").split()
        self.arena_folder = Path(running.docker("volume", "inspect", "--format", "{{.Mountpoint}}", *arenas).strip())
        self._memory = FillableFolder(self.arena_folder)

    def _override(self, libraries: Path) -> Path:
        """Writes what differs from docker-compose.yml, and returns it."""
        services: dict[str, Any] = json.loads(libraries.read_text())["services"]
        services.setdefault("redis", {})
        for service, address in _ADDRESSES.items():
            services[service]["networks"] = {"default": {"ipv4_address": address}}
        for service in ORCHESTRATORS:
            services[service]["command"] = ["at-address", "dyorc", "orchestrator", "--in-process"]
            services[service]["volumes"].append(f"{self.folder}:{self.folder}")
        for service in ("ray-head", "ray-worker"):
            services[service] |= {"command": ["sleep", "infinity"], "healthcheck": {"test": ["CMD", "true"]}}
        networks = {"default": {"ipam": {"config": [{"subnet": f"{_SUBNET}.0/24"}]}}}
        path = libraries.with_name("storm.json")
        path.write_text(json.dumps({"services": services, "networks": networks}))
        return path

    def stop(self) -> None:
        with self._stack:
            if self._members and self._cluster is not None:
                ours = [service for service in self._members if service != "redis"]
                self._cluster.compose("stop", *ours)
                for service in ours:
                    member = self._members[service]
                    if (status := member.inspect("{{.State.ExitCode}}")) not in _ENDS_WELL:
                        self.findings.faults.append(f"{service} ended with {status}: {'; '.join(member.lines()[-5:])[-600:]}")
                    bad = [line for line in member.lines() if any(text in line for text in BAD_LINES)]
                    self.findings.faults += [f"{service} printed {line[:300]!r}" for line in bad[:3]]
                if self.arena_folder is not None:
                    self.findings.leaks += [f"left in shared memory: {path}" for path in self.arena_folder.iterdir()]
                self._tail = [
                    f"{service}: {line}" for service, each in self._members.items() for line in each.lines()[-_TAIL_LINES:]
                ]

    # What can happen

    def faults(self) -> Mapping[str, Mapping[str, Callable[[], Fault]]]:
        chance = self._chance
        gateways: dict[str, Callable[[], Fault]] = {
            f"{what} gateway": lambda make=make: self._at_gateway(make) for what, make in self._makers.items()
        }
        orchestrators: dict[str, Callable[[], Fault]] = {
            f"{what} {role}": lambda role=role, make=make: self._at_leader(role, make)
            for role in ("leader", "standby")
            for what, make in self._makers.items()
        }
        redis = self._members["redis"]
        away: dict[str, Callable[[], Fault]] = {
            f"{what} redis": lambda make=make: make("redis", redis, ["store"], [], STORE_TIMEOUT_S)
            for what, make in self._makers.items()
        }
        return {
            "gateways": gateways,
            "orchestrators": orchestrators,
            "store": away,
            "memory": {"full memory": lambda: faults.full(self._memory, "memory", ["capacity"])},
            WHOLE: {"deploy": lambda: faults.deploy(chance.choice(self.entrances), _TARGETS, chance)},
        }

    @property
    def _makers(self) -> "Mapping[str, _Maker]":
        return {"kill": self._kill, "restart": self._restart, "pause": self._pause, "disconnect": self._disconnect}

    def _some_s(self) -> float:
        return self._chance.uniform(0.2, _MAX_AWAY_S)

    def _at_gateway(self, make: "_Maker") -> Fault:
        at = self._chance.randrange(len(GATEWAYS))
        return make("gateway", self._members[GATEWAYS[at]], ["not_ready"], [at], 0.0)

    def _at_leader(self, role: str, make: "_Maker") -> Fault:
        """Strikes the orchestrator that leads, or the other one."""
        leader = self._leader()
        service = leader if role == "leader" else next(one for one in ORCHESTRATORS if one != leader)
        if role == "standby":
            return make(role, self._members[service], [], [], 0.0)
        return make(role, self._members[service], faults.LOST_WITH_LEADER, [], LEASE_S + self._members[service].start_bound_s)

    def _leader(self) -> str:
        leaders: list[str] = []

        def is_known() -> bool:
            with self.entrances[0].entered():
                leaders[:] = [one for one in ORCHESTRATORS if _is_answered(_ADDRESSES[one], 9100, "/v2/health/ready")]
            return bool(leaders)

        wait_until(is_known, "an orchestrator leads and is ready")
        return leaders[0]

    def _kill(self, role: str, member: "_Container", codes: Sequence[str], cuts: Sequence[int], further_s: float) -> Fault:
        """SIGKILL to the main process. Docker starts the container again."""
        bound_s = further_s + member.start_bound_s
        return Fault(name=f"kill {role}", apply=member.kill, end=member.wait, bound_s=bound_s, codes=codes, cuts=cuts)

    def _restart(self, role: str, member: "_Container", codes: Sequence[str], cuts: Sequence[int], further_s: float) -> Fault:
        return Fault(
            name=f"restart {role}",
            apply=member.restart,
            end=member.wait,
            bound_s=further_s + member.start_bound_s,
            codes=codes,
            cuts=cuts,
            is_graceful=role != "redis",
        )

    def _pause(self, role: str, member: "_Container", codes: Sequence[str], cuts: Sequence[int], further_s: float) -> Fault:
        for_s = self._some_s()

        def apply() -> None:
            member.docker("pause")
            time.sleep(for_s)
            member.docker("unpause")

        bound_s = for_s + further_s + faults.BUSY_S
        return Fault(name=f"pause {role}", apply=apply, end=member.wait, bound_s=bound_s, codes=codes)

    def _disconnect(self, role: str, member: "_Container", codes: Sequence[str], cuts: Sequence[int], further_s: float) -> Fault:
        """Takes it from the network for a while. It keeps its address."""
        for_s = self._some_s()

        def apply() -> None:
            member.disconnect()
            time.sleep(for_s)
            member.connect()

        bound_s = for_s + further_s + faults.BUSY_S
        return Fault(name=f"disconnect {role}", apply=apply, end=member.wait, bound_s=bound_s, codes=codes, cuts=cuts)

    # What it is made of

    def pids(self) -> dict[str, list[int]]:
        kinds = {"gateway": GATEWAYS, "orchestrator": ORCHESTRATORS}
        return {kind: [pid for one in services for pid in self._members[one].pids()] for kind, services in kinds.items()}

    def arena_owners(self) -> set[int]:
        owners: set[int] = set()
        for pid in (pid for pids in self.pids().values() for pid in pids):
            with suppress(OSError):
                match = re.search(r"^NSpid:.*\t(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
                owners |= {int(match[1])} if match else set()
        return owners

    @property
    def num_log_lines(self) -> int:
        return sum(member.num_lines for member in self._members.values())

    @property
    def log_tail(self) -> str:
        return "\n".join(self._tail)


_Maker = Callable[[str, "_Container", Sequence[str], Sequence[int], float], Fault]


class _Container:
    """A service's container, which is struck and comes back.

    Attributes:
        service: Its name in docker-compose.yml.
    """

    def __init__(self, running: Cluster, service: str) -> None:
        self.service = service
        self._cluster = running
        self._id = running.container(service)
        self._log = Path(self.inspect("{{.LogPath}}"))
        self._network = self.inspect("{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}")
        self._starts_s: deque[float] = deque(maxlen=NUM_STARTS)
        self._num_starts = 1
        self._num_start_lines = 0
        self._struck_s: float | None = None

    @property
    def start_bound_s(self) -> float:
        """How long a start may take, beside the load."""
        return faults.BUSY_FACTOR * max(self._starts_s) + faults.BUSY_S

    @property
    def num_lines(self) -> int:
        """How many lines it has printed, but for those of its starts."""
        return max(0, len(self.lines()) - self._num_start_lines * self._num_starts)

    def lines(self) -> list[str]:
        """Returns all that it has printed, as Docker keeps it."""
        return self._log.read_text(errors="replace").splitlines()

    def has_started(self, start_s: float) -> None:
        """Notes its first start, and how many lines it has left."""
        self._starts_s.append(start_s)
        self._num_start_lines = len(self.lines())

    @property
    def age_s(self) -> float:
        """How long ago Docker started it."""
        started = datetime.fromisoformat(self.inspect("{{.State.StartedAt}}"))
        return (datetime.now(UTC) - started).total_seconds()

    def inspect(self, form: str) -> str:
        """Returns something that Docker knows of it."""
        return self._cluster.engine.docker("inspect", "--format", form, self._id).strip()

    def docker(self, *command: str) -> None:
        """Runs a command of Docker's for it."""
        self._cluster.engine.docker(*command, self._id)

    def pids(self) -> list[int]:
        """Returns its processes, without the init."""
        with suppress(psutil.Error):
            return [child.pid for child in psutil.Process(int(self.inspect("{{.State.Pid}}"))).children(recursive=True)]
        return []

    def kill(self) -> None:
        """SIGKILL to its main process."""
        self._struck_s = time.monotonic()
        self._cluster.kill(self.service)

    def restart(self) -> None:
        """Has it end by SIGTERM, and start again."""
        self._struck_s = time.monotonic()
        self.docker("restart", f"--time={_RESTART_S}")

    def disconnect(self) -> None:
        """Takes it from the network."""
        self._cluster.engine.docker("network", "disconnect", self._network, self._id)

    def connect(self) -> None:
        """Puts it back into the network, under its name and address."""
        address = f"--ip={_ADDRESSES[self.service]}"
        self._cluster.engine.docker("network", "connect", address, f"--alias={self.service}", self._network, self._id)

    def wait(self) -> None:
        """Returns once it does its work."""
        wait_until(self._is_well, f"{self.service} is well")
        if self._struck_s is not None:
            self._starts_s.append(time.monotonic() - self._struck_s)
            self._num_starts += 1
            self._struck_s = None

    def _is_well(self) -> bool:
        if self.service == "redis":
            return self._cluster.is_healthy("redis")
        with _entered(self._cluster.engine.namespace):
            return _is_answered(_ADDRESSES[self.service], *_HEALTH[self.service])


def _is_answered(address: str, port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}:{port}{path}", timeout=_READY_S) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


@contextmanager
def _entered(namespace: str) -> Generator[None]:
    """Puts the calling thread into the network of the containers."""
    home, there = (os.open(path, os.O_RDONLY) for path in ("/proc/thread-self/ns/net", namespace))
    try:
        enter_namespace(there)
        try:
            yield
        finally:
            enter_namespace(home)
    finally:
        os.close(home)
        os.close(there)
