"""Cells that deploy together, without processes: the real deployers, exchange and hub, and made-up programs and store."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

from dyorc.config import DeploymentConfig
from dyorc.deployment.deployer import Deployer
from dyorc.deployment.loaded_versions import LoadedVersions
from dyorc.deployment.peers import DeploymentPeers
from dyorc.deployment.persistence import recall_record, record_reader, record_writer, wait_for_record
from dyorc.deployment.state import DeploymentState, ModelHistory, Version
from dyorc.errors import StoreError
from dyorc.models.offers import ModelKey
from dyorc.store.base import NoteFence
from dyorc.supervisor.cell_peers import CellPeers
from dyorc.supervisor.cell_process import CellProcess
from dyorc.supervisor.hub import CellHub
from dyorc.system.json_lines import JsonLineStream, Message
from tests.unit.deployment.test_state import FIRST, version

DEPLOYED = FIRST.with_version(version("2"), 1.0).with_version(version("3"), 1.0)
"""Three versions; the last one is the default."""
NAME = "deployed/shop"


class Notes:
    """A store of notes.

    Attributes:
        is_down: Whether it cannot be used now.
        is_noted: Called once something is noted; a test may hold up here who has noted it.
    """

    def __init__(self, history: ModelHistory = DEPLOYED) -> None:
        self.values: dict[str, bytes] = {NAME: DeploymentState(1, {"flow": history}).to_json()}
        self.is_down = False
        self.is_noted: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)

    async def note(self, name: str, value: bytes, fence: NoteFence | None = None) -> bool:
        self._check()
        self.values[name] = value
        await self.is_noted()
        return True

    async def noted(self, name: str) -> bytes | None:
        self._check()
        return self.values.get(name)

    async def claim_notes(self, fence: NoteFence) -> int:
        raise NotImplementedError

    def _check(self) -> None:
        if self.is_down:
            raise StoreError("the store is down")


class Loaded:
    """Stands in for `LoadedVersions`.

    Attributes:
        loaded: What is loaded.
        shown: What is offered: the default version, and the shares of the others.
        failures: Versions that cannot be loaded now.
        gate: Versions come only while it is set.
    """

    def __init__(self, record: DeploymentState) -> None:
        self.loaded = {ModelKey(model, name) for model, line in record.lines.items() for name in line.loaded_names()}
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: set[str] = set()
        self.show(record)

    def show(self, record: DeploymentState) -> None:
        now = record.lines["flow"].now
        self.shown = None if now is None else (now.default, dict(now.shares))

    async def bring_in(self, version: Version, timeout_s: float) -> None:
        self.loaded.add(ModelKey(version.model, version.version))
        await self.gate.wait()
        if version.version in self.failures:
            raise StoreError(f"version {version.version} cannot be loaded")

    async def discard(self, key: ModelKey) -> None:
        self.loaded.discard(key)

    def is_missing(self, key: ModelKey) -> bool:
        return False

    def names(self) -> set[str]:
        """Returns the loaded versions' names."""
        return {key.version for key in self.loaded}


class _Channel:
    """A connection between a cell and the supervisor."""

    def __init__(self, deliver: Callable[[Message], None]) -> None:
        self._deliver = deliver
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self.is_open = True

    def send(self, kind: str, **content: Any) -> None:
        if self.is_open:
            self._deliver(json.loads(json.dumps(content | {"kind": kind})))

    def push(self, kind: str, **content: Any) -> None:
        self._messages.put_nowait(json.loads(json.dumps(content | {"kind": kind})))

    async def receive(self) -> Message | None:
        return await self._messages.get()


class Cell:
    """One cell. It has its order, and has read what is deployed, but has not begun to deploy.

    Attributes:
        states: As of a `CellProcess`.
        asked: What it was asked, with the values.
    """

    deployer: Deployer
    loaded: Loaded

    def __init__(self, number: int, supervisor: "Cells") -> None:
        self.number = number
        self.states: Any = None
        self.asked: list[tuple[str, Any]] = []
        self.channel = _Channel(lambda message: supervisor.handle(self, message))
        self.peers = CellPeers(number, supervisor.num_cells, cast("JsonLineStream", self.channel))
        self.peers.inherit(None, supervisor.hub.remembered)
        self.deploying = DeploymentPeers(self.peers)
        self._notes = supervisor.notes
        self._listening = asyncio.create_task(self.peers.listen())

    def send(self, kind: str, **content: Any) -> None:
        """Sends it a message from the supervisor."""
        if kind == "asked":
            self.asked.append((content["what"], content["value"]))
        self.channel.push(kind, **content)

    async def read(self) -> None:
        """Reads what is deployed, and loads it."""
        self.before = await wait_for_record(self._notes, "shop", recall_record(self.peers))
        self.loaded = Loaded(self.before)

    def report_states(self) -> None:
        """From now on, the supervisor passes questions to it."""
        self.channel.send("states", programs={})

    async def begin(self) -> None:
        """Begins to deploy; when this returns, the cell would listen."""
        self.report_states()
        versions = cast("LoadedVersions", self.loaded)
        read, keep = record_reader(self._notes, "shop", self.before, self.before), record_writer(self._notes, "shop")
        self.deployer = Deployer(
            versions, self.deploying, DeploymentConfig(), ["/app.py:flow"], keep, read, step_limit_s=1.0
        )  # fmt: skip
        await self.deployer.begin(self.before)

    async def end(self) -> None:
        """Ends at once. What it has sent arrives."""
        self.channel.is_open = False
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self.deploying.close()


class Cells:
    """Stands in for the supervisor."""

    def __init__(self, num_cells: int = 2) -> None:
        self.num_cells = num_cells
        self.notes = Notes()
        self.cells: dict[int, Cell] = {}
        self.hub = CellHub(cast("dict[int, CellProcess]", self.cells), num_cells)

    async def order(self, number: int) -> Cell:
        """Starts a cell, which reads what is deployed."""
        cell = self.cells[number] = Cell(number, self)
        await cell.read()
        return cell

    async def start(self, number: int) -> Cell:
        """Starts a cell, and lets it begin."""
        cell = await self.order(number)
        await cell.begin()
        return cell

    async def lose(self, number: int) -> None:
        """Ends a cell, and tells the others."""
        cell = self.cells[number]
        await cell.end()
        self.hub.drop_questions(cast("CellProcess", cell))
        cell.states = None
        self._send_states()

    def handle(self, cell: Cell, message: Message) -> None:
        """Handles a cell's message."""
        if message["kind"] == "states":
            cell.states = message["programs"]
            self._send_states()
        else:
            self.hub.handle(cast("CellProcess", cell), message)

    def _send_states(self) -> None:
        states = [[cell.number, cell.states] for cell in self.cells.values() if cell.states is not None]
        self.hub.tell_all("siblings", states=states, is_complete=False, has_started=True)


@contextlib.asynccontextmanager
async def cells(num_cells: int = 2) -> AsyncGenerator[Cells]:
    """Yields a supervisor without cells. Ends its cells."""
    supervisor = Cells(num_cells)
    try:
        yield supervisor
    finally:
        for cell in supervisor.cells.values():
            await cell.end()
