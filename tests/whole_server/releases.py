"""New versions of a workflow while servers come and go: a process that deploys and rolls back, and one that uses the workflow.

Each release is a file of its own, and its answers name it. `DeployedModels` says in plain Python what may be deployed at any
time: a change whose answer was lost has been made or not, and the next answer shows which.
"""

import asyncio
import random
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import dyorc
from dyorc.client import Retries
from dyorc.config import DEFAULT_GROUP
from dyorc.deployment import deployer, import_check
from dyorc.errors import ConflictError, DyOrcError, UnknownModelError
from tests.whole_server.explanations import GIVEN_UP
from tests.whole_server.world import VirtualProcess, World

MODEL = "stamped"
FACTOR = 1000
"""An answer is this many times the input, plus the release's number; that of the targets themselves is 0."""
_CODE = """import time

import numpy as np
from jaxtyping import Int

import dyorc


@dyorc.program(in_process=True, max_batch_size=4)
def stamps(x: Int[np.ndarray, "batch"]) -> Int[np.ndarray, "batch"]:
    time.sleep(0.003)
    return x * {factor} + {release}


@dyorc.workflow
async def stamped(x: Int[np.ndarray, ""]) -> Int[np.ndarray, ""]:
    return stamps(x)
"""
_TIMEOUT_S, _REST_S = 40.0, 6.0
_MEAN_PAUSE_S, _MEAN_USE_S = 2.5, 0.4
_JOB_RATIO = 0.2
_SHARE = 0.3
_ONCE, _RETRIES = Retries(max_attempts=1), Retries(max_attempts=12)
_MAY_FAIL_WITH = {"transport", "not_ready", "overloaded", "capacity", "replica_lost", "tensor_lost", "store", "deadline"}
"""What a change, or a request, may fail with while servers come and go."""
_JOBS_MAY_SAY = ("has left, so it is not known", GIVEN_UP)
"""What a job may fail with, too: its server died, and its version left before another server took it; or that three times."""


@dataclass(frozen=True)
class Lineup:
    """Which releases answer: the default one, and others with a share."""

    default: int
    shares: tuple[int, ...] = ()

    @property
    def releases(self) -> set[int]:
        """All of them."""
        return {self.default, *self.shares}


@dataclass(frozen=True)
class Line:
    """What is deployed, and what a rollback leads to, the latest last."""

    now: Lineup
    past: tuple[Lineup, ...] = ()

    def changed(self, now: Lineup) -> "Line":
        """Returns the line after a change."""
        return self if now == self.now else Line(now, (*self.past, self.now))


Change = Callable[[Line], Line | None]
"""Returns what a change makes of a line; None if it is refused."""


def _release(number: int, share: float) -> Change:
    return lambda line: line.changed(
        Lineup(number) if share == 1 else replace(line.now, shares=tuple(sorted({*line.now.shares, number})))
    )


def _withdraw(number: int) -> Change:
    def change(line: Line) -> Line | None:
        if number not in line.now.shares:
            return None
        return line.changed(replace(line.now, shares=tuple(other for other in line.now.shares if other != number)))

    return change


def _roll_back(line: Line) -> Line | None:
    return Line(line.past[-1], line.past[:-1]) if line.past else None


@dataclass
class DeployedModels:
    """What may be deployed, and from when on which releases may answer.

    Attributes:
        promoted: Releases that were deployed again. If the first time has failed, they got their number after later ones.
    """

    lines: set[Line] = field(default_factory=lambda: {Line(Lineup(0))})
    wrong: list[str] = field(default_factory=list[str])
    promoted: set[int] = field(default_factory=set[int])
    _steps: list[tuple[float, frozenset[int]]] = field(default_factory=lambda: [(0.0, frozenset({0}))])
    _releases: dict[str, int] = field(default_factory=lambda: {"1": 0})

    def begin(self, change: Change, now_s: float) -> set[Line]:
        """Notes that a change has begun; returns what it may lead to."""
        after = {made for line in self.lines if (made := change(line)) is not None}
        self._may_answer({*self.lines, *after}, now_s)
        return after

    def succeed(self, after: set[Line], report: dict[str, Any], now_s: float) -> None:
        """Notes that a change was acknowledged, with what is deployed now."""
        releases = {name: _release_of(version["target"]) for name, version in report["versions"].items()}
        self._check_numbers(releases)
        lineup = Lineup(releases[report["default"]], tuple(sorted(releases[name] for name in report["shares"])))
        fitting = {line for line in after if line.now == lineup}
        if not fitting:
            self.wrong.append(f"{lineup} is deployed after a change, expected one of {sorted(map(str, after))}")
            fitting = {Line(lineup)}
        self.lines = fitting
        self._may_answer(fitting, now_s)

    def fail(self, after: set[Line], now_s: float) -> None:
        """Notes that a change has failed, and may have been made."""
        self.lines |= after
        self._may_answer(self.lines, now_s)

    def refuse(self, after: set[Line], text: str, now_s: float) -> None:
        """Notes that a change was refused, so nothing has changed: what it could have been made of is not deployed."""
        if len(after) == len(self.lines):
            self.wrong.append(f"a change was refused that can be made: {text}")
        self._may_answer(self.lines, now_s)

    def _check_numbers(self, releases: dict[str, int]) -> None:
        for name, release in releases.items():
            if self._releases.setdefault(name, release) != release:
                self.wrong.append(f"version {name} is release {release}, and was release {self._releases[name]}")
            others = {before: other for before, other in self._releases.items() if other not in self.promoted}
            if any(release > other and int(name) < int(before) for before, other in others.items()):
                self.wrong.append(f"release {release} has version {name} although earlier ones have higher versions")

    def _may_answer(self, lines: Iterable[Line], now_s: float) -> None:
        self._steps.append((now_s, frozenset[int]().union(*(line.now.releases for line in lines))))

    def releases_between(self, begin_s: float, end_s: float) -> Collection[int]:
        """Returns the releases that may answer a request that was sent and answered at these times."""
        ends = [*(at_s for at_s, _ in self._steps[1:]), float("inf")]
        overlapping = (
            releases for (at_s, releases), until_s in zip(self._steps, ends, strict=True) if at_s <= end_s and until_s >= begin_s
        )
        return frozenset[int]().union(*overlapping)


def _release_of(target: str) -> int:
    stem = Path(target.partition(":")[0]).stem
    return int(stem.removeprefix("release_")) if stem.startswith("release_") else 0


class Releases:
    """A process that deploys, and one that uses what is deployed.

    Args:
        ports: Of the gateways.
        folder: Where the releases' files are.
        until_s: When the faults are over.
        known_s: Returns until when a gateway has known what is deployed, by its port and a time.
    """

    def __init__(
        self, world: World, seed: int, ports: list[int], folder: str, until_s: float, known_s: Callable[[int, float], float]
    ) -> None:
        self.models = DeployedModels()
        self.num_changes = self.num_jobs = 0
        self._world = world
        self._chance = random.Random(f"releases {seed}")
        self._ports = ports
        self._folder = folder
        self._until_s = until_s
        self._known_s = known_s
        self._count = 0
        self._num_uses = 0
        self._wrong: list[str] = []
        self._is_deploying, self._is_calm = True, False

    def start(self) -> list[VirtualProcess]:
        """Starts both processes, which end after the faults."""
        return [
            self._world.start_process("deployer", lambda: asyncio.run(self._deploy())),
            self._world.start_process("user", lambda: asyncio.run(self._use())),
        ]

    @property
    def wrong(self) -> list[str]:
        """What should not have been."""
        return [*self.models.wrong, *self._wrong]

    # Deploying

    async def _deploy(self) -> None:
        while self._world.elapsed_s < self._until_s:
            await asyncio.sleep(self._chance.expovariate(1 / _MEAN_PAUSE_S))
            await self._change_something()
        await asyncio.sleep(_REST_S)
        self._is_calm = True
        await self._change("deploys", self._new(), 1.0)
        await self._change("rolls back", 0, 0.0)
        await self._change("deploys", self._new(), 1.0)
        self._is_deploying = False

    async def _change_something(self) -> None:
        shared = sorted({release for line in self.models.lines for release in line.now.shares})
        kind = self._chance.choice(("deploys", "deploys", "shares", "rolls back", "promotes", "withdraws"))
        if kind == "withdraws":  # of one that may have been promoted nobody knows whether it serves all, and goes with the model
            shared = [release for release in shared if all(release != line.now.default for line in self.models.lines)]
        if kind in ("promotes", "withdraws") and not shared:
            kind = "deploys"
        if kind in ("promotes", "withdraws"):
            await self._change(kind, self._chance.choice(shared), 1.0)
        elif kind == "rolls back":
            await self._change(kind, 0, 0.0)
        elif kind == "deploys" or len(shared) > 1:
            await self._change("deploys", self._new(), 1.0)
        else:
            await self._change("shares", self._new(), _SHARE)

    def _new(self) -> int:
        self._count += 1
        Path(self._folder, f"release_{self._count}.py").write_text(_CODE.format(factor=FACTOR, release=self._count))
        return self._count

    async def _change(self, kind: str, release: int, share: float) -> None:
        port = self._chance.choice(self._ports)
        world, models = self._world, self.models
        change = {"rolls back": _roll_back, "withdraws": _withdraw(release)}.get(kind, _release(release, share))
        world.log(kind, release=release, port=port)
        if kind == "promotes":
            models.promoted.add(release)
        after = models.begin(change, world.elapsed_s)
        text = ""
        try:
            async with dyorc.AsyncClient(f"http://127.0.0.1:{port}", timeout_s=_TIMEOUT_S, retries=_ONCE) as client:
                if kind == "rolls back":
                    report = await client.rollback(MODEL)
                elif kind == "withdraws":
                    report = await client.undeploy(MODEL, await self._version_of(client, release))
                else:
                    report = await client.deploy(f"{self._folder}/release_{release}.py:{MODEL}", group=DEFAULT_GROUP, share=share)
            models.succeed(after, report, world.elapsed_s)
            self.num_changes += 1
        except (ConflictError, UnknownModelError) as error:
            text = str(error)
            models.refuse(after, text, world.elapsed_s)
        except DyOrcError as error:
            text = f"{error.code}: {error}"
            models.fail(after, world.elapsed_s)
            if self._is_calm or error.code not in _MAY_FAIL_WITH:
                self._wrong.append(f"a change ({kind} {release}) failed with {text}")
        world.log("a change ends", kind=kind, release=release, error=text, lines=sorted(map(str, models.lines)))

    async def _version_of(self, client: dyorc.AsyncClient, release: int) -> str:
        versions = (await client.deployments()).get(MODEL, {"versions": {}})["versions"]
        return next((name for name, version in versions.items() if _release_of(version["target"]) == release), "none")

    # Using

    async def _use(self) -> None:
        async with asyncio.TaskGroup() as group:
            while self._world.elapsed_s < self._until_s:
                await asyncio.sleep(self._chance.expovariate(1 / _MEAN_USE_S))
                group.create_task(self._request(self._chance.choice(self._ports)))
        while self._is_deploying:  # noqa: ASYNC110 (an event of asyncio belongs to one loop, and these are two)
            await asyncio.sleep(0.1)
        for port in self._ports:
            await self._request(port)

    async def _request(self, port: int) -> None:
        world, is_calm = self._world, not self._is_deploying
        self._num_uses += 1
        value, begin_s, is_job = self._num_uses, world.elapsed_s, self._chance.random() < _JOB_RATIO
        self.num_jobs += is_job
        since_s = self._known_s(port, begin_s)
        world.log("uses a job" if is_job else "uses", x=value, port=port)
        text, answer = "", 0
        try:
            async with dyorc.AsyncClient(f"http://127.0.0.1:{port}", timeout_s=_TIMEOUT_S, retries=_RETRIES) as client:
                if is_job:
                    result = await (await client.submit(MODEL, x=np.asarray(value))).result(timeout_s=60.0)
                else:
                    result = await client.infer(MODEL, x=np.asarray(value))
            answer = int(np.asarray(result))
        except DyOrcError as error:
            text = f"{error.code}: {error}"
            if is_calm or not (error.code in _MAY_FAIL_WITH or (is_job and any(part in text for part in _JOBS_MAY_SAY))):
                self._wrong.append(f"use {value} failed with {text}")
        else:
            release, allowed = answer - value * FACTOR, self.models.releases_between(since_s, world.elapsed_s)
            if release not in allowed:
                self._wrong.append(f"use {value} was answered by release {release}, expected one of {sorted(allowed)}")
        world.log("use ends", x=value, release=answer - value * FACTOR, error=text)


def prepare() -> None:
    """Lets releases be tried in this process of the operating system: another one would not be in the world."""

    async def check_import(target: str, timeout_s: float) -> import_check.ProbeResult:
        await asyncio.sleep(random.uniform(0.05, 0.4))
        before = set(sys.modules)
        result = import_check._try(target)
        for name in set(sys.modules) - before:
            del sys.modules[name]
        return result

    module: Any = deployer
    module.check_import = check_import
    sys.dont_write_bytecode = True
