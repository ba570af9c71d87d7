"""The versions that this process has loaded: loads them, puts them on offer, and drops them when no request needs them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from dyorc.authoring.bundle_imports import BundleImporter
from dyorc.authoring.bundles import Bundle
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import ProgramOverrides
from dyorc.deployment.code_thread import run_on_own_thread
from dyorc.deployment.loading_versions import (
    LoadedVersion,
    codes_for,
    declared_groups,
    fingerprints_of,
    fingerprints_of_target,
    groups_for,
    importer_of,
    load_with,
    names_for,
    rename_programs,
)
from dyorc.deployment.state import DeploymentState, Version
from dyorc.errors import DeployError, DyOrcError, ModuleImportError
from dyorc.models.offers import ModelKey
from dyorc.models.registry import ModelRegistry, ServedModel
from dyorc.models.status import ProgramState
from dyorc.models.submission import BeginEpoch
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replica.assignment import ProgramSource
from dyorc.system.idle_collection import IdleCollection
from dyorc.system.switch_interval import switch_interval_at_most

_log = structlog.get_logger("dyorc.deploying")

_SWITCH_INTERVAL_S = 0.0005
"""While a thread imports code, the event loop waits for one switch interval each time it wakes up; Python's default is 5 ms."""

_LOOK_AGAIN_S = 0.5
_FIRST_POLL_S, _MAX_POLL_S = 0.02, 0.5

Places = Mapping[Program, ProgramSource]
"""Programs with the places where replicas find them."""


async def _do_nothing(*_: object) -> None:
    pass


def _leave_as_declared(programs: Iterable[Program]) -> None:
    """Programs of a group run in this process, whatever they declare for their replicas."""


async def _no_complaints() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class ServerRuntime:
    """What runs the programs of a server: an orchestrator, and what starts its replicas. `dyorc.server.runtime` makes it.

    Attributes:
        deploy: Starts the replicas that are not in this process, and returns when they are supervised. Call it once requests can
            come. May raise LaunchError.
        complaints: Returns what keeps programs from starting, by program.
        settle: Gives programs that will share processes of their own the options that they have to have in common. Called before
            they are added. May raise DefinitionError.
        add: Starts the replicas of other programs, unless they are in this process. Those of a group come together. May raise
            LaunchError.
        remove: Ends the replicas of a program.
        address: Where replicas dial in; empty if none do.
    """

    orchestrator: Orchestrator
    deploy: Callable[[], Awaitable[None]] = _do_nothing
    complaints: Callable[[], Awaitable[Mapping[str, str]]] = _no_complaints
    settle: Callable[[Iterable[Program]], object] = _leave_as_declared
    add: Callable[[Places], Awaitable[None]] = _do_nothing
    remove: Callable[[Program], Awaitable[None]] = _do_nothing
    address: str = ""


@dataclass
class ProgramOwnership:
    """A program that has replicas, or is about to.

    Attributes:
        program: The program whose code they run.
        users: The versions that call it, by this object or an equal one.
        is_started: Whether its replicas were requested.
        is_ending: Whether its replicas are being ended.
    """

    program: Program
    users: set[ModelKey] = field(default_factory=set[ModelKey])
    is_started: bool = False
    is_ending: bool = False


class LoadedVersions:
    """The versions of one process. Used on the event loop.

    Args:
        running: What runs programs here.
        repertoire: What is on offer.
        options: The settings' options for programs, by their own names.
        begin_epoch: Begins an epoch of the server's requests.
        import_timeout_s: How long importing a version may take.

    Attributes:
        loaded: All versions that are loaded here, on offer or not.
        has_left: Called when a version was dropped.
    """

    def __init__(
        self,
        running: ServerRuntime,
        repertoire: ModelRegistry,
        options: Mapping[str, ProgramOverrides],
        begin_epoch: BeginEpoch,
        import_timeout_s: float,
    ) -> None:
        self._running = running
        self._orchestrator = running.orchestrator
        self._repertoire = repertoire
        self._overrides = {name: overrides.changes for name, overrides in options.items()}
        self._begin_epoch = begin_epoch
        self._import_timeout_s = import_timeout_s
        self.loaded: dict[ModelKey, LoadedVersion] = {}
        self._failed_at_start: set[ModelKey] = set()
        self._owned: dict[str, ProgramOwnership] = {}
        self._used: set[str] = set()
        self._used_groups: set[str] = set()
        self._shown: list[ServedModel] = []
        self._leaving: dict[ModelKey, asyncio.Task[None]] = {}
        self._left: list[LoadedVersion] = []
        self._garbage = IdleCollection(lambda: not running.orchestrator.num_requests)
        self._offered: set[ModelKey] = set()
        self.has_left: Callable[[], object] = lambda: None

    def begin(self, versions: Iterable[LoadedVersion], record: DeploymentState, *, is_group: bool = True) -> None:
        """Adds what the server was started with.

        Args:
            is_group: Whether all of it has to be ready; otherwise, what no target names may fail.
        """
        for loaded in versions:
            self._take_in(loaded)
        for owned in self._owned.values():
            owned.is_started = True
        self._used |= record.names()
        self._used_groups |= record.groups()
        self._offered |= self.loaded.keys()
        self.show(record)
        needed = {part.key for part in self._shown}
        for name, owned in self._owned.items():
            status = self._orchestrator.status.programs[name]
            status.is_awaited = not needed.isdisjoint(owned.users)
            status.may_fail = not is_group and not any(record.lines[key.name].origin for key in owned.users)
        deployed = {ModelKey(model, name) for model, line in record.lines.items() for name in line.loaded_names()}
        self._failed_at_start = deployed - self.loaded.keys()

    @property
    def live(self) -> list[Version]:
        """All versions that are loaded here, as values for the store."""
        return [version.as_version for version in self.loaded.values()]

    def is_missing(self, key: ModelKey) -> bool:
        """Returns whether a deployed version could not be loaded when the server started, and was not loaded since."""
        return key in self._failed_at_start and key not in self.loaded

    async def close(self) -> None:
        """Keeps everything loaded from now on."""
        self._garbage.close()
        for task in self._leaving.values():
            task.cancel()
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    # Bringing in

    async def draft(self, model: str, version: str, bundle: Bundle, *, shares: bool) -> Version:
        """Loads code as a version that is not deployed yet, and returns it as a value.

        Args:
            shares: Whether equal programs of other versions may be used.

        Raises:
            DeployError: If it cannot be loaded.
        """
        workflow, importer, prints = await self._load(bundle)
        known = list(self.loaded.values()) if shares else []
        is_shared = {name for name, owned in self._owned.items() if not owned.is_ending}
        group_of = declared_groups(workflow)
        names = names_for(prints, version, known, is_shared, self._used, group_of)
        groups = groups_for(names, version, known, self._used_groups, group_of)
        codes = codes_for(names, bundle, self.loaded.values())
        drafted = Version(model=model, version=version, bundle=bundle, names=names, codes=codes, groups=groups)
        self._take_in(rename_programs(workflow, drafted, prints, importer))
        return drafted

    async def bring_in(self, version: Version, timeout_s: float) -> None:
        """Loads a version, unless it is loaded, and returns when its programs are ready.

        Raises:
            DeployError: If it cannot be loaded. The caller then drops it.
        """
        key = ModelKey(version.model, version.version)
        while (leaving := self._leaving.get(key)) is not None:
            if key in self.loaded and self.loaded[key].bundle.digest == version.bundle.digest:
                leaving.cancel()  # otherwise other code has the name, and goes on until its requests have ended
            await asyncio.wait([leaving])
        if key in self.loaded and key not in self._offered and self.loaded[key].bundle.digest != version.bundle.digest:
            await self.discard(key)  # left over from a deployment that did not end
        if key not in self.loaded:
            workflow, importer, prints = await self._load(version.bundle)
            self._take_in(rename_programs(workflow, version, prints, importer))
        loaded = self.loaded[key]
        try:
            async with asyncio.timeout(timeout_s):
                await self._start(loaded)
                await self._warm(loaded)
        except TimeoutError:
            unready = "; ".join(self._unready(loaded))
            raise DeployError(f"version {version.version!r} is not ready after {timeout_s:g} s: {unready}") from None

    async def _load(self, bundle: Bundle) -> tuple[Workflow | Program, BundleImporter, Mapping[str, str | None]]:
        importer = importer_of(bundle)

        def load() -> tuple[Workflow | Program, Mapping[str, str | None]]:
            with switch_interval_at_most(_SWITCH_INTERVAL_S):
                workflow = load_with(importer, self._overrides)
                return workflow, fingerprints_of_target(workflow, fingerprints_of(bundle, importer))

        subject = (
            f"{bundle.target} cannot be loaded: importing it in the server, where it has been tried in another process before,"
        )
        try:
            workflow, prints = await run_on_own_thread(load, self._import_timeout_s, subject)
        except BaseException as error:
            importer.unload()  # also what a thread has imported that is left behind: without it, nothing more is found there
            if isinstance(error, DyOrcError):
                raise refusal(error) from error
            raise
        return workflow, importer, prints

    def _take_in(self, loaded: LoadedVersion) -> None:
        self.loaded[loaded.key] = loaded
        for program in loaded.programs.values():
            self._owned.setdefault(program.name, ProgramOwnership(program)).users.add(loaded.key)
            self._used.add(program.name)
        self._used_groups |= {program.group for program in loaded.programs.values() if program.shares_process}

    async def _start(self, loaded: LoadedVersion) -> None:
        """Serves its programs, and waits until their replicas have been requested."""
        mine = [program for program in loaded.programs.values() if self._owned[program.name].program is program]
        new = [program for program in mine if not self._owned[program.name].is_started]
        try:
            self._running.settle(new)
        except DyOrcError as error:
            raise refusal(error) from error
        for program in loaded.programs.values():
            if program not in mine:
                self._orchestrator.programs.add(program)
        places: dict[Program, ProgramSource] = {}
        for program in new:
            self._owned[program.name].is_started = True
            if not self._orchestrator.programs.add(program, is_awaited=False):
                places[program] = loaded.source(program)
        if places:
            await self._running.add(places)

    async def _warm(self, loaded: LoadedVersion) -> None:
        status, mine, number = self._orchestrator.status, set(loaded.names.values()), 0
        unready = set(mine)
        while True:
            number, changed = status.changed_since(number)
            for program in [status.programs[name] for name in changed if name in mine]:
                if program.is_as_wanted:
                    unready.discard(program.name)
                    continue
                unready.add(program.name)
                if program.state is ProgramState.FAILING and not program.is_awaited:
                    raise DeployError(f"program {program.name!r} cannot be loaded: {program.error}")
            if not unready:
                return
            await status.wait_for_change(_LOOK_AGAIN_S)

    def _unready(self, loaded: LoadedVersion) -> list[str]:
        programs = self._orchestrator.status.programs
        mine = [programs[name] for name in loaded.names.values() if name in programs]
        return [f"program {program.name!r} is {program.state.value}" for program in mine if not program.is_as_wanted]

    # Showing

    def show(self, record: DeploymentState) -> None:
        """Puts the deployed versions on offer, as far as they are loaded, and drops all others once their requests have ended."""
        lineups = [(model, line.now) for model, line in record.lines.items() if line.now is not None]
        chosen = [(ModelKey(model, now.default), now.traffic_of(now.default)) for model, now in lineups]
        chosen += [(ModelKey(model, version), now.traffic_of(version)) for model, now in lineups for version in now.shares]
        in_order = [(self.loaded[key], traffic) for key, traffic in chosen if key in self.loaded]
        parts = {part.key: part for loaded, traffic in reversed(in_order) for part in reversed(loaded.with_traffic(traffic))}
        self._shown = list(reversed(parts.values()))
        shown = {loaded.key for loaded, _ in in_order}
        for loaded, _ in in_order:
            for name in loaded.names.values():
                self._orchestrator.status.programs[name].is_awaited = True
        self._offered |= shown
        self._offer(shown)
        for key in self.loaded.keys() - shown:
            self._let_go(key)

    def _offer(self, shown: set[ModelKey]) -> None:
        lingering = [part for key, loaded in self.loaded.items() if key not in shown for part in loaded.parts]
        self._repertoire.change(self._shown, lingering)

    # Letting go

    def leaving_task(self, key: ModelKey) -> asyncio.Task[None] | None:
        """Returns the task that ends when a version has left; None if it is not about to leave."""
        return self._leaving.get(key)

    async def discard(self, key: ModelKey) -> None:
        """Drops a version that is not deployed. If it was on offer, it is dropped once its requests have ended."""
        if key in self._offered:
            self._let_go(key)
        elif key in self.loaded:
            await self._drop(self.loaded.pop(key))

    def _let_go(self, key: ModelKey) -> None:
        if key in self.loaded and key not in self._leaving:
            self._leaving[key] = asyncio.get_running_loop().create_task(self._leave(key))

    async def _leave(self, key: ModelKey) -> None:
        """Drops a version once its last request has ended."""
        loaded = self.loaded[key]
        try:
            is_over, delay_s = self._begin_epoch(), _FIRST_POLL_S
            while not is_over() or any(self._orchestrator.runs(part.workflow) for part in loaded.parts):
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _MAX_POLL_S)
            del self.loaded[key]
            self._offered.discard(key)
            self._offer({part.key for part in self._shown})
            await self._drop(loaded)
            self.has_left()
            _log.info("version_left", model=loaded.model, version=loaded.version)
        finally:
            del self._leaving[key]

    async def _drop(self, loaded: LoadedVersion) -> None:
        for program in loaded.programs.values():
            owned = self._owned[program.name]
            owned.users.discard(loaded.key)
            if program is not owned.program:
                self._orchestrator.programs.remove(program)
            if not owned.users:
                await self._end(owned)
        for part in loaded.parts:
            self._orchestrator.programs.forget(part.workflow)
        self._left.append(loaded)
        self._unload()

    async def _end(self, owned: ProgramOwnership) -> None:
        owned.is_ending = True
        if owned.is_started:
            await self._orchestrator.programs.unload(owned.program)
            await self._running.remove(owned.program)
            self._orchestrator.programs.remove(owned.program)
        del self._owned[owned.program.name]

    def _unload(self) -> None:
        """Forgets the modules of versions that have left, unless one of their programs still serves another version."""
        needed = {owned.program for owned in self._owned.values()}
        unneeded = [version for version in self._left if not needed & set(version.programs.values())]
        for version in unneeded:
            version.unload()
            self._left.remove(version)
        if unneeded:
            self._garbage.ask()  # modules are cycles, and a server's collector hardly ever looks at what has lived for long


def refusal(error: DyOrcError) -> DeployError:
    """Returns the error for the client that deploys, with the user's lines of the traceback."""
    traceback = error.user_traceback if isinstance(error, ModuleImportError) else ""
    return DeployError(f"{error}\n{traceback}".rstrip())
