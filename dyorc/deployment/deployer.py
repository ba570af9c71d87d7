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
from dyorc.deployment.import_check import check_import
from dyorc.deployment.loaded_versions import LoadedVersions, refusal
from dyorc.deployment.peers import DeploymentPeers
from dyorc.deployment.probe import ProbeResult
from dyorc.deployment.state import DeploymentState, ModelHistory, Version, check_share, next_version
from dyorc.errors import ConflictError, DefinitionError, InvalidInputError, PermissionDeniedError, UnknownModelError
from dyorc.models.offers import ModelKey
from dyorc.protocol.deployment_changes import Deploy, DeploymentChange, Rollback, Undeploy

_log = structlog.get_logger("dyorc.deploying")

Keep = Callable[[bytes], Awaitable[None]]
"""Notes what is deployed where it outlives the server. May raise StoreError."""


class Deployer:
    """Used on the event loop. One change at a time.

    Args:
        stage: The versions in this process.
        peers: The other processes of the server.
        targets: What the server was started with.
        keep: See `Keep`.

    Attributes:
        record: What is deployed.
        stage: The same.
    """

    def __init__(
        self, stage: LoadedVersions, peers: DeploymentPeers, config: DeploymentConfig, targets: Sequence[str], keep: Keep
    ) -> None:
        self.stage = self._stage = stage
        self._peers = peers
        self._config = config
        self._folders = [*folders_of(targets), *(Path(folder).resolve() for folder in config.code_folders)]
        self._packages = {target.partition(":")[0].partition(".")[0] for target in targets if ".py:" not in target}
        self._keep = keep
        self.record = DeploymentState()

    async def begin(self, record: DeploymentState) -> None:
        """Begins with what was loaded at the start, and follows what others have deployed since."""
        self.record = record
        self._peers.begin(self._bring_in_here, self._discard_here, self._follow, lambda: self.record)
        newest = await self._peers.newest()
        if newest is not None and newest.number > self.record.number:
            await self._follow(newest)

    async def change(self, change: DeploymentChange) -> dict[str, Any]:
        """Carries out one change, in all processes. Requests that have begun on a version which leaves are still answered.

        Raises:
            DeployError: If a version cannot be loaded. Nothing has changed then.
            ConflictError: If the version exists with other code, or cannot stand beside the others.
        """
        if isinstance(change, Deploy):
            check_share(change.share)
        async with self._peers.turn():
            match change:
                case Deploy():
                    return await self._deploy(change)
                case Undeploy(model, version):
                    history = self.record.line(model)
                    return await self._put(model, history.unloaded() if version is None else history.undeployed(version))
                case Rollback(model):
                    return await self._put(model, self.record.line(model).rolled_back())

    def report(self) -> dict[str, Any]:
        """Returns what is deployed, and what waits for a way back, as plain values."""
        return {model: _report(history) for model, history in sorted(self.record.lines.items())}

    # One deployment

    async def _deploy(self, change: Deploy) -> dict[str, Any]:
        """Loads a version and gives it a share of the requests; with all of them, it replaces the default."""
        history = self.record.lines.get(change.model) if change.model else None
        target = change.target or self._target_of(change, history)
        if not target:
            assert history is not None
            return await self._put(change.model, history.deployed(history.versions[change.version], change.share), change)
        probe = await self._probe(target)
        if change.model and probe.model != change.model:
            raise InvalidInputError(f"{target} is {probe.model!r}, not {change.model!r}")
        return await self._deploy_target(probe, change)

    def _target_of(self, change: Deploy, history: ModelHistory | None) -> str:
        """Returns the target of a change that names none: that of the default; empty if the version is known."""
        if history is None:
            raise UnknownModelError(f"nothing is deployed as {change.model!r}; say what to load: a target like app.py:classify")
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
                f"{place} lies in none of the folders from which this server loads code: "
                f"{', '.join(map(str, self._folders))}; the setting DEPLOYMENT__CODE_FOLDERS names others"
            )
        if not is_file and place.partition(".")[0] not in self._packages and not _is_near(place, self._folders):
            raise PermissionDeniedError(f"module {place!r} is not part of the packages that this server was started with")
        try:
            return await check_import(target, self._config.import_timeout_s)
        except DefinitionError as error:
            raise refusal(error) from error

    async def _deploy_target(self, probe: ProbeResult, change: Deploy) -> dict[str, Any]:
        assert probe.bundle is not None
        model, history = probe.model, self.record.lines.get(probe.model)
        self._check_name(probe)
        name = change.version or _same_as_default(history, probe) or next_version(history)
        try:
            check_name(f"version {name!r}", name)
        except DefinitionError as error:
            raise InvalidInputError(str(error)) from None
        known = history.versions.get(name) if history is not None else None
        if known is not None and known.bundle.digest != probe.bundle.digest:
            raise ConflictError(f"version {name!r} of {model!r} exists, with other code; choose another name for this one")
        key = ModelKey(model, name)
        is_new = known is None and key not in self._stage.loaded
        try:
            version = known or await self._draft(key, probe, change)
            after = ModelHistory.starting_with(version) if history is None else history.deployed(version, change.share)
            return await self._put(model, after, change)
        except BaseException:
            if is_new:
                await asyncio.shield(self._stage.discard(key))
            raise

    async def _draft(self, key: ModelKey, probe: ProbeResult, change: Deploy) -> Version:
        assert probe.bundle is not None
        while (leaving := self._stage.leaving(key)) is not None:  # it had this name before, and other code
            await asyncio.wait([leaving])
        drafted = await self._stage.draft(*key, probe.bundle, shares=not change.is_fresh)
        return msgspec.structs.replace(drafted, deployed_s=round(time.time(), 3))

    def _check_name(self, probe: ProbeResult) -> None:
        """Refuses a model whose name means something else already."""
        programs = {
            own for history in self.record.lines.values() for version in history.versions.values() for own in version.names
        }
        workflows = {model for model, history in self.record.lines.items() if model not in _own_names(history)}
        if probe.model not in probe.programs and probe.model in programs:
            raise ConflictError(f"workflow {probe.model!r} has the name of a program that is served")
        if clash := sorted(workflows & set(probe.programs)):
            raise ConflictError(f"program {clash[0]!r} has the name of a workflow that is served")

    async def _put(self, model: str, history: ModelHistory, change: Deploy | None = None) -> dict[str, Any]:
        """Makes a model's history what is loaded and on offer, in all processes."""
        record = self.record.with_line(model, history)
        before = self.record.lines.get(model)
        new = [history.versions[name] for name in history.loaded() if before is None or name not in before.loaded()]
        try:
            await self._bring_in_everywhere(new)
            if change is not None and not change.is_incompatible_allowed:
                self._check_compatible(model, history, before)
            await self._keep(record.to_json())
        except BaseException:
            keys = [ModelKey(version.model, version.version) for version in new]
            await asyncio.shield(asyncio.gather(*(self._discard_here(key) for key in keys), self._peers.discard(keys)))
            raise
        self.record = record
        self._stage.show(record)
        await self._peers.show(record)
        _log.info("deployed", model=model, **_report(history))
        return {"model": model, **_report(history)}

    def _check_compatible(self, model: str, history: ModelHistory, before: ModelHistory | None) -> None:
        """Refuses a version that gets requests which were written for another, and cannot answer them."""
        if before is None or before.now is None or history.now is None:
            return
        old = self._stage.loaded[ModelKey(model, before.now.default)]
        for name in (history.now.default, *(version_name for version_name, share in history.now.shares.items() if share)):
            if why := incompatibility(old.workflow, self._stage.loaded[ModelKey(model, name)].workflow):
                raise ConflictError(
                    f"version {name!r} cannot answer what is asked of version {old.version!r} of {model!r}: {why}; deploy it "
                    "with share 0 for those who ask for it by its version, or allow the change"
                )

    # In all processes

    async def _bring_in_everywhere(self, versions: Sequence[Version]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for version in versions:
                    group.create_task(self._bring_in_here(version))
                    group.create_task(self._peers.bring_in(version, self._config.warm_timeout_s))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _bring_in_here(self, version: Version) -> None:
        await self._stage.bring_in(version, self._config.warm_timeout_s)

    async def _discard_here(self, key: ModelKey) -> None:
        history = self.record.lines.get(key.name)
        if history is None or key.version not in history.loaded():
            await self._stage.discard(key)

    async def _follow(self, record: DeploymentState) -> None:
        """Does what another process has decided."""
        if record.number <= self.record.number:
            return
        self.record = record
        for history in record.lines.values():
            for name in history.loaded():
                await self._bring_in_here(history.versions[name])
        if record is self.record:
            self._stage.show(record)


def _same_as_default(history: ModelHistory | None, probe: ProbeResult) -> str:
    """Returns the default's version if it has just this code."""
    if history is None or history.now is None or probe.bundle is None:
        return ""
    default = history.versions[history.now.default]
    return default.version if default.bundle.digest == probe.bundle.digest else ""


def _own_names(history: ModelHistory) -> set[str]:
    return {own for version in history.versions.values() for own in version.names}


def _is_near(module: str, folders: Sequence[Path]) -> bool:
    """Returns whether a module lies in one of the folders."""
    top = os.path.join(*module.split(".")[:1])
    return any((folder / top).is_dir() or (folder / f"{top}.py").is_file() for folder in folders)


def _report(history: ModelHistory) -> dict[str, Any]:
    now = history.now
    return {
        "default": None if now is None else now.default,
        "shares": {} if now is None else dict(now.shares),
        "versions": {
            name: {
                "is_loaded": name in history.loaded(), "target": version.bundle.target, "code": version.bundle.digest[:12],
                "programs": dict(version.names), "deployed_s": version.deployed_s,
            }
            for name, version in history.versions.items()
        },
        "can_roll_back": bool(history.past),
    }  # fmt: skip
