"""Deploys versions of workflows while the server runs: each is loaded in all its processes before any request gets it."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from dyorc.authoring.loading import absolute
from dyorc.authoring.program import check_name
from dyorc.authoring.user_files import folders_of
from dyorc.config import DeploymentConfig
from dyorc.deployment.compatibility import incompatibility
from dyorc.deployment.import_check import ProbeResult, check_import
from dyorc.deployment.loaded_versions import LoadedVersions, refusal
from dyorc.deployment.loading_versions import LoadedVersion
from dyorc.deployment.peers import DeploymentPeers
from dyorc.deployment.replay_check import check_replay
from dyorc.deployment.state import DeploymentState, ModelHistory, TrafficAssignment, Version, check_share, next_version
from dyorc.errors import (
    ConflictError,
    DefinitionError,
    InvalidInputError,
    PermissionDeniedError,
    StoreError,
    UnknownModelError,
    UnsupportedError,
)
from dyorc.models.offers import ModelKey, OfferedWorkflow
from dyorc.protocol.canary_rules import read_rules
from dyorc.protocol.deployment_changes import STICKY_BY_KEY, Deploy, DeploymentChange, Rollback, Undeploy
from dyorc.protocol.header_names import USABLE_NAME

_log = structlog.get_logger("dyorc.deploying")

_MAX_HEADER_CHARS = 64
_REPLAY_TIMEOUT_S = 0.1
"""For each request that is replayed, besides the time for the import."""

Keep = Callable[[bytes], Awaitable[None]]
"""Persists what is deployed, as JSON. May raise StoreError, and ConflictError if another process has deployed meanwhile."""

Read = Callable[[], Awaitable[DeploymentState]]
"""Returns what is deployed of the models that this server serves, as it was persisted last, by whichever process. May raise
StoreError."""


class Deployer:
    """Carries out changes, one at a time. Used on the event loop.

    Args:
        versions: The versions in this process.
        peers: The other processes of the server.
        targets: What the server was started with.
        keep: Persists what is deployed.
        read: Reads what other processes have persisted; None: only this one does.
        can_judge: Whether somebody judges versions (`CanaryRunner`).
        histories: Folder of this server's recorded requests; empty: it records none.
        step_limit_s: How long a step of a workflow may take, also in a replay.

    Attributes:
        record: What is deployed.
        versions: As given.
    """

    def __init__(
        self,
        versions: LoadedVersions,
        peers: DeploymentPeers,
        config: DeploymentConfig,
        targets: Sequence[str],
        keep: Keep,
        read: Read | None = None,
        *,
        can_judge: bool = False,
        histories: str = "",
        step_limit_s: float,
    ) -> None:
        self.versions = versions
        self._histories = histories
        self._step_limit_s = step_limit_s
        self._peers = peers
        self._config = config
        self._folders = [*folders_of(targets), *(Path(folder).resolve() for folder in config.code_folders)]
        self._packages = {target.partition(":")[0].partition(".")[0] for target in targets if ".py:" not in target}
        self._keep = keep
        self._read = read
        self._num_shown = 0
        self._showing = asyncio.Lock()
        self._can_judge = can_judge
        self.record = DeploymentState()

    async def begin(self, record: DeploymentState) -> None:
        """Begins with what was loaded at the start, and follows what the other processes have deployed since. The store is read
        after this process has begun to listen to them: each change is in the store before others hear of it, so none is missed.

        Raises:
            DeployError: If this process cannot load what is deployed.
        """
        self.record, self._num_shown = record, record.number
        self._peers.begin(self)
        try:
            await self.read_again()
        except StoreError:  # the other processes have said what they know
            self._peers.catch_up_later()
        self._peers.tell(self.record)
        await self.show()

    async def change(self, change: DeploymentChange) -> dict[str, Any]:
        """Carries out one change, in all processes. A version that leaves still answers the requests that it has.

        Raises:
            DeployError: If a version cannot be loaded. Nothing has changed then.
            ConflictError: If the version exists with other code, or is not compatible with the others.
        """
        if isinstance(change, Deploy):
            check_share(change.share_or_default)
            _check_shadow(change)
            self._check_rules(change)
            check_sticky(change.sticky or "")
            _check_counts(change)
        async with self._peers.turn(change.summary):
            match change:
                case Deploy():
                    return await self._deploy(change)
                case Undeploy(model, version):
                    before = self.record.history_of(model)
                    history = before.without_versions() if version is None else before.without_version(version)
                    return await self._put(model, history)
                case Rollback(model):
                    return await self._put(model, self.record.history_of(model).roll_back())

    async def settle_canary(self, model: str, seen: TrafficAssignment, *, goes_on: bool, reason: str) -> None:
        """Gives the version of a model that is judged the next step, or rolls it back.

        Args:
            seen: What was deployed when it was judged. If something else is by now, nothing happens.

        Raises:
            DyOrcError: If it could not be done.
        """
        async with self._peers.turn(f"the judgement of {model!r}"):
            history = self.record.lines.get(model)
            if history is None or history.now != seen or seen.canary is None:
                return
            after = history.settle_canary(goes_on=goes_on, reason=reason, now_s=round(time.time(), 3))
            await self._put(model, after)
        facts = {"model": model, "version": seen.canary.version, "share": seen.shares[seen.canary.version], "reason": reason}
        if not goes_on:
            _log.warning("canary_rolled_back", **facts)
        elif after.verdict is history.verdict:
            _log.info("canary_goes_on", **facts, next_share=after.now.shares[seen.canary.version] if after.now else None)
        else:
            _log.info("canary_promoted", **facts)

    def _check_rules(self, change: Deploy) -> None:
        """Checks the rules by which a version is to be judged.

        Raises:
            InvalidInputError: If they are no rules, or there is nothing to judge.
            UnsupportedError: If this server cannot judge.
        """
        if change.rules is None:
            return
        rules = read_rules(change.rules)
        if not self._can_judge:
            raise UnsupportedError(
                "an orchestrator of a group judges no versions: its gateways have the counts; use --canary, and dyorc rollback"
            )
        if not 0 < change.share_or_default < 1:
            raise InvalidInputError(
                f"the share is {change.share_or_default:g}; a version that is judged begins with more than 0 and less than "
                "all of the requests: --canary PERCENT, or the first of the rules' steps"
            )
        if rules.compares and not change.shadow:
            raise InvalidInputError("canary rules: differences needs copies of requests; give --shadow PERCENT, too")

    def report(self) -> dict[str, Any]:
        """Returns the deployed and earlier versions of all models, as plain values."""
        return {model: _report(history) for model, history in sorted(self.record.lines.items())}

    def work(self) -> dict[str, str] | None:
        """Returns the change that is being carried out in any process, and since when; None if there is none."""
        return self._peers.work()

    # One deployment

    async def _deploy(self, change: Deploy) -> dict[str, Any]:
        """Loads a version and gives it a share of the requests; with all of them, it replaces the default."""
        history = self.record.lines.get(change.model) if change.model else None
        target = change.target or self._target_of(change, history)
        if not target:
            if change.after_replay:
                raise InvalidInputError(
                    f"version {change.version!r} of {change.model!r} is known, and is loaded as it was; to replay requests on it "
                    "before, name its target"
                )
            assert history is not None
            return await self._put(change.model, _with_version(history, history.versions[change.version], change), change)
        probe = await self._probe(target)
        if change.model and probe.model != change.model:
            raise InvalidInputError(f"{target} is {probe.model!r}, not {change.model!r}")
        name = self._name_of(probe, change)
        if not change.after_replay:
            return await self._deploy_target(probe, name, change)
        self._check_before_replay(probe, name, change)
        place = probe.bundle.target if probe.bundle is not None else target
        timeout_s = self._config.import_timeout_s + change.after_replay * _REPLAY_TIMEOUT_S
        served = self.record.lines.get(probe.model)
        codes = () if served is None else [served.versions[each].code for each in served.loaded_names()]
        replayed = await check_replay(
            place, self._histories, change.after_replay, codes, change.max_differences, timeout_s, self._step_limit_s
        )
        counts: dict[str, Any] = {"num_replayed": replayed.num_replayed, "num_different": replayed.num_different}
        if replayed.num_not_replayed:
            counts["num_not_replayed"] = replayed.num_not_replayed
        if replayed.damaged:
            counts["num_damaged"] = len(replayed.damaged)
        return {**await self._deploy_target(probe, name, change), "replay": counts}

    def _target_of(self, change: Deploy, history: ModelHistory | None) -> str:
        """Returns the target of a change that names none: that of the default; empty if the version is known."""
        if history is None:
            raise UnknownModelError(f"nothing is deployed as {change.model!r}; name a target to load, like app.py:classify")
        if change.version in history.versions:
            return ""
        newest = history.now.default if history.now is not None else list(history.versions)[-1]
        return history.versions[newest].bundle.target

    async def _probe(self, target: str) -> ProbeResult:
        target = absolute(target)
        place = target.rpartition(":")[0]
        is_file = place.endswith(".py")
        if is_file and not any(Path(place).is_relative_to(folder) for folder in self._folders):
            raise PermissionDeniedError(
                f"{place} is in none of the folders from which this server loads code: "
                f"{', '.join(map(str, self._folders))}; add a folder with the setting DEPLOYMENT__CODE_FOLDERS"
            )
        if not is_file and place.partition(".")[0] not in self._packages and not _is_near(place, self._folders):
            raise PermissionDeniedError(f"module {place!r} is not part of the packages that this server was started with")
        try:
            return await check_import(target, self._config.import_timeout_s)
        except DefinitionError as error:
            raise refusal(error) from error

    def _name_of(self, probe: ProbeResult, change: Deploy) -> str:
        """Returns the name of the version that a change makes of code.

        Raises:
            InvalidInputError: If no version can have it, or nothing is there to judge it by.
            ConflictError: If another version, or another model, has it.
        """
        assert probe.bundle is not None
        model, history = probe.model, self.record.lines.get(probe.model)
        self._check_name(probe)
        name = change.version or ("" if change.is_fresh else _loaded_name(history, probe)) or next_version(history)
        try:
            check_name(f"version {name!r}", name)
        except DefinitionError as error:
            raise InvalidInputError(str(error)) from None
        if not change.version and history is not None and history.now is not None and name == history.now.default:
            _check_share_of_default(model, name, change)
        known = history.versions.get(name) if history is not None else None
        if known is not None and known.bundle.digest != probe.bundle.digest:
            raise ConflictError(f"version {name!r} of {model!r} exists, with other code; choose another name")
        if history is None and change.rules is not None:
            raise InvalidInputError(
                f"nothing is deployed as {model!r}, so there is nothing to judge it by; deploy it without rules"
            )
        return name

    def _check_before_replay(self, probe: ProbeResult, name: str, change: Deploy) -> None:
        """Refuses what would be refused after the replay, as far as that is known before the code is loaded.

        Raises:
            ConflictError: If it cannot have its share, cannot have copies, or does not fit the default version.
        """
        history = self.record.lines.get(probe.model)
        if probe.bundle is None or probe.offer is None or history is None:
            return
        draft = history.versions.get(name) or Version(model=probe.model, version=name, bundle=probe.bundle, names={})
        after = _with_version(history, draft, change)
        if after.now is not None and name in after.now.shadows:
            _check_copies(probe.model, name, [program.name for program in probe.offer.programs if program.has_effect])
        old = None if history.now is None else self.versions.loaded.get(ModelKey(probe.model, history.now.default))
        gets_requests = change.share_or_default > 0 or change.shadow > 0
        if old is not None and gets_requests and not change.is_incompatible_allowed:
            _check_fits(old, name, probe.offer.workflow)

    async def _deploy_target(self, probe: ProbeResult, name: str, change: Deploy) -> dict[str, Any]:
        assert probe.bundle is not None
        model, history = probe.model, self.record.lines.get(probe.model)
        known = None if history is None else history.versions.get(name)
        key = ModelKey(model, name)
        try:
            version = known or await self._draft(key, probe, change)
            after = ModelHistory.starting_with(version) if history is None else _with_version(history, version, change)
            return await self._put(model, after, change)
        except BaseException:
            if known is None:
                await asyncio.shield(self.discard(key))
            raise

    async def _draft(self, key: ModelKey, probe: ProbeResult, change: Deploy) -> Version:
        assert probe.bundle is not None
        while (leaving := self.versions.leaving_task(key)) is not None:  # a version with this name and other code
            await asyncio.wait([leaving])
        await self.discard(key)  # one that was never on offer
        drafted = await self.versions.draft(*key, probe.bundle, shares=not change.is_fresh)
        return msgspec.structs.replace(drafted, deployed_s=round(time.time(), 3))

    def _check_name(self, probe: ProbeResult) -> None:
        """Refuses a model whose name has another meaning already."""
        programs = {
            own for history in self.record.lines.values() for version in history.versions.values() for own in version.names
        }
        workflows = {model for model, history in self.record.lines.items() if model not in _own_names(history)}
        if probe.model not in probe.programs and probe.model in programs:
            raise ConflictError(f"workflow {probe.model!r} has the name of a program that is served")
        if clash := sorted(workflows & set(probe.programs)):
            raise ConflictError(f"program {clash[0]!r} has the name of a workflow that is served")

    async def _put(self, model: str, history: ModelHistory, change: Deploy | None = None) -> dict[str, Any]:
        """Loads and offers what a model's history says, in all processes."""
        record = self.record.with_history(model, history)
        before = self.record.lines.get(model)
        present = () if before is None else before.loaded_names()
        names = [
            name
            for name in history.loaded_names()
            if name not in present or (change is not None and self.versions.is_missing(ModelKey(model, name)))
        ]
        new = [history.versions[name] for name in names]
        if change is not None and before is not None and not new and history.now == before.now:
            return {"model": model, **_report(before), "is_changed": False}
        try:
            await self._bring_in_everywhere(new)
            for name in () if history.now is None else history.now.shadows:
                loaded = self.versions.loaded[ModelKey(model, name)]
                unsafe = [own for own, program in loaded.programs.items() if not program.options.is_repeatable]
                _check_copies(model, name, unsafe)
            if change is not None and not change.is_incompatible_allowed:
                self._check_compatible(model, history, before)
            await self._keep(record.to_json())
        except BaseException:
            keys = [ModelKey(version.model, version.version) for version in new]
            await asyncio.shield(asyncio.gather(*(self.discard(key) for key in keys), self._peers.discard(keys)))
            raise
        self.record = record
        self.versions.show(record)
        self._num_shown = record.number
        await self._peers.show(record, self._config.warm_timeout_s)
        _log.info("deployed", model=model, **_report(history))
        return {"model": model, **_report(history), "is_changed": True}

    def _check_compatible(self, model: str, history: ModelHistory, before: ModelHistory | None) -> None:
        """Refuses a version that cannot answer the requests it would get, since they were written for another."""
        if before is None or before.now is None or history.now is None:
            return
        old = self.versions.loaded.get(ModelKey(model, before.now.default))
        if old is None:  # it could not be loaded when the server started, so it has no clients
            return
        asked = {**history.now.shadows, **{name: share for name, share in history.now.shares.items() if share}}
        for name in (history.now.default, *asked):
            _check_fits(old, name, OfferedWorkflow.of(self.versions.loaded[ModelKey(model, name)].workflow))

    # In all processes

    async def _bring_in_everywhere(self, versions: Sequence[Version]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for version in versions:
                    group.create_task(self.bring_in(version))
                    group.create_task(self._peers.bring_in(version, self._config.warm_timeout_s))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    # For the other processes (`DeployedHere`)

    @property
    def num_shown(self) -> int:
        return self._num_shown

    async def bring_in(self, version: Version) -> None:
        await self.versions.bring_in(version, self._config.warm_timeout_s)

    async def discard(self, key: ModelKey) -> None:
        history = self.record.lines.get(key.name)
        if history is None or key.version not in history.loaded_names():
            await self.versions.discard(key)

    def take_over(self, record: DeploymentState) -> None:
        if record.number > self.record.number:
            self.record = record

    async def show(self) -> None:
        async with self._showing:
            while self._num_shown < self.record.number:
                record = self.record
                for history in record.lines.values():
                    for name in history.loaded_names():
                        if not self.versions.is_missing(ModelKey(history.versions[name].model, name)):
                            await self.bring_in(history.versions[name])
                if record is self.record:
                    self.versions.show(record)
                    self._num_shown = record.number

    async def read_again(self) -> None:
        if self._read is None:
            return
        stored = await self._read()
        if stored.number > self.record.number:
            # Targets that were never deployed stay as this server has read them; another may have read other code.
            own = {model for model, line in self.record.lines.items() if line.is_as_started}
            lines = {model: line for model, line in stored.lines.items() if not (line.is_as_started and model in own)}
            self.take_over(DeploymentState(stored.number, {**self.record.lines, **lines}))
            self._peers.tell(self.record)  # the others may have read it earlier, and the one who noted it may have ended


def _loaded_name(history: ModelHistory | None, probe: ProbeResult) -> str:
    """Returns the loaded version with exactly this code, the default before others; without one an empty text."""
    if history is None or probe.bundle is None:
        return ""
    digest = probe.bundle.digest
    return next((name for name in history.loaded_names() if history.versions[name].bundle.digest == digest), "")


def _with_version(history: ModelHistory, version: Version, change: Deploy) -> ModelHistory:
    """Returns the history after a deployment."""
    rules = None if change.rules is None else read_rules(change.rules)
    return history.with_version(version, change.share_or_default, shadow=change.shadow, sticky=change.sticky, rules=rules)


def _check_share_of_default(model: str, name: str, change: Deploy) -> None:
    """Checks the share of code that the default version has already.

    Raises:
        ConflictError: If it is a part of the requests: there is nothing to divide them with.
    """
    if change.share_or_default < 1:
        raise ConflictError(
            f"{model!r} is unchanged: version {name!r}, the default, has this code already, so no other version can get a part "
            "of its requests; change the code, or load it again as a new version (--fresh)"
        )


def _check_shadow(change: Deploy) -> None:
    """Checks which copies of requests a version gets.

    Raises:
        InvalidInputError: If the part is not between 0 and 1, or it would get all requests besides.
    """
    check_share(change.shadow, "shadow share")
    if change.shadow and change.share_or_default >= 1:
        raise InvalidInputError(
            f"the shadow share is {change.shadow:g} and the share 1; a version that gets all requests needs no copies"
        )


def _check_fits(old: LoadedVersion, name: str, new: OfferedWorkflow) -> None:
    """Checks that a version can answer the requests that it would get: they were written for another.

    Raises:
        ConflictError: If not.
    """
    if reason := incompatibility(OfferedWorkflow.of(old.workflow), new):
        raise ConflictError(
            f"version {name!r} cannot answer requests for version {old.version!r} of {old.model!r}: {reason}; deploy it "
            "with share 0 (--share 0), for requests that name this version, or allow the change (--allow-incompatible)"
        )


def _check_copies(model: str, version: str, unsafe: Sequence[str]) -> None:
    """Checks that a version may get copies of requests.

    Args:
        unsafe: Its programs that must not run twice for a request.

    Raises:
        ConflictError: If there are any.
    """
    if unsafe:
        raise ConflictError(
            f"version {version!r} of {model!r} gets no copies of requests: its program {unsafe[0]!r} has effects, "
            "which would happen twice; declare it idempotent if they may, or use a share (--canary)"
        )


def _check_counts(change: Deploy) -> None:
    for name, number in (("after_replay", change.after_replay), ("max_differences", change.max_differences)):
        if number < 0:
            raise InvalidInputError(f"{name} is {number}, expected a whole number from 0")
    if change.max_differences and not change.after_replay:
        raise InvalidInputError(
            f"max_differences is {change.max_differences}, and no requests are to be replayed: give after_replay, too"
        )


def check_sticky(header: str) -> None:
    """Checks the header that picks the version of a request.

    Raises:
        InvalidInputError: If no header can have this name.
    """
    if header and not (len(header) <= _MAX_HEADER_CHARS and USABLE_NAME.fullmatch(header)):
        raise InvalidInputError(
            f"sticky is {header!r}, expected a header in lower case, such as x-session-id, or {STICKY_BY_KEY!r}"
        )


def _own_names(history: ModelHistory) -> set[str]:
    return {own for version in history.versions.values() for own in version.names}


def _is_near(module: str, folders: Sequence[Path]) -> bool:
    """Returns whether a module is in one of the folders."""
    top = os.path.join(*module.split(".")[:1])
    return any((folder / top).is_dir() or (folder / f"{top}.py").is_file() for folder in folders)


def _report(history: ModelHistory) -> dict[str, Any]:
    now = history.now
    return {
        "default": None if now is None else now.default,
        "shares": {} if now is None else dict(now.shares),
        "shadows": {} if now is None else dict(now.shadows),
        "sticky": "" if now is None else now.sticky,
        "versions": {
            name: {
                "is_loaded": name in history.loaded_names(), "target": version.bundle.target, "code": version.bundle.digest[:12],
                "programs": dict(version.names), "deployed_s": version.deployed_s,
            }
            for name, version in history.versions.items()
        },
        "can_roll_back": bool(history.past),
        "canary": None if now is None or now.canary is None else msgspec.to_builtins(now.canary),
        "verdict": None if history.verdict is None else msgspec.to_builtins(history.verdict),
    }  # fmt: skip
