"""The gateway's end of changes that orchestrators carry out: deployed versions, and how many replicas a program keeps."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from dyorc.cluster.cluster_messages import Change, ChangeDone, ChangeRefused, DrainQuery, DrainReply, FromGateway, Scale
from dyorc.errors import InvalidInputError, NotReadyError, UnknownModelError
from dyorc.models.submission import BeginEpoch
from dyorc.protocol.deployment_changes import Deploy, DeploymentChange
from dyorc.transport.error_codec import unpack_error

_POLL_S = 0.05


class GroupControl:
    """Sends changes to the orchestrator of one group, and answers its drain queries. Used on the event loop.

    Args:
        send: Sends the orchestrator a message.
        is_connected: Whether one is there.

    Attributes:
        deployed: The versions of all models, by name, as the orchestrator last reported them.
        is_unheard: Whether no orchestrator has reported any yet.
        begin_epoch: Begins an epoch of this gateway's requests.
    """

    def __init__(self, group: str, send: Callable[[FromGateway], None], is_connected: Callable[[], bool]) -> None:
        self.deployed: dict[str, Any] = {}
        self.is_unheard = True
        self.begin_epoch: BeginEpoch = lambda: lambda: True
        self._group = group
        self._send = send
        self._is_connected = is_connected
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._draining: set[asyncio.Task[None]] = set()

    def next_number(self) -> int:
        """Returns the number of the next request."""
        return next(self._numbers)

    async def request(self, message: Change | Scale) -> dict[str, Any]:
        """Sends the orchestrator a change and waits until it is carried out; after a `Change`, returns the model's versions.

        Raises:
            NotReadyError: If there is no orchestrator, or it is lost meanwhile.
            DyOrcError: If it refuses; nothing has changed then.
        """
        if not self._is_connected():
            participle = "deployed" if isinstance(message, Change) else "scaled"
            raise NotReadyError(f"group {self._group!r} has no leader now, so nothing can be {participle}")
        waiting = self._waiting[message.number] = asyncio.get_running_loop().create_future()
        try:
            self._send(message)
            return await waiting
        finally:
            self._waiting.pop(message.number, None)

    def report(self, deployed: dict[str, Any]) -> None:
        """Takes what the orchestrator reports as deployed."""
        self.deployed, self.is_unheard = deployed, False

    def receive(self, message: ChangeDone | ChangeRefused | DrainQuery) -> None:
        """Handles a result or a drain query from the orchestrator."""
        if isinstance(message, DrainQuery):
            self._drain(message)
            return
        waiting = self._waiting.get(message.number)
        if waiting is None or waiting.done():
            return
        if isinstance(message, ChangeDone):
            waiting.set_result(message.line)
        else:
            waiting.set_exception(unpack_error(message.code, message.text, message.facts))

    def _drain(self, query: DrainQuery) -> None:
        if not query.with_requests:
            self._send(DrainReply(query.number))
            return
        task = asyncio.create_task(self._wait_until_drained(query.number))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _wait_until_drained(self, number: int) -> None:
        is_over = self.begin_epoch()
        while not is_over():  # noqa: ASYNC110 (an event would cost each request)
            await asyncio.sleep(_POLL_S)
        self._send(DrainReply(number))

    def lose(self) -> None:
        """Fails the waiting changes: the orchestrator is gone."""
        for task in self._draining:
            task.cancel()
        lost = f"the orchestrator of group {self._group!r} was lost meanwhile; check what has changed before you try again"
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(NotReadyError(lost))


class ControlClient:
    """Deploys through the orchestrators of a gateway's groups; the gateway's `Deployments`.

    Args:
        groups: One client for each group; if several groups have a model, changes go to the first of them.
    """

    def __init__(self, groups: Mapping[str, GroupControl]) -> None:
        self._groups = groups

    def drain_by(self, begin_epoch: BeginEpoch) -> None:
        """Keeps replaced versions loaded until the requests have ended that this gateway had when they were replaced."""
        for control in self._groups.values():
            control.begin_epoch = begin_epoch

    async def change(self, change: DeploymentChange) -> dict[str, Any]:
        """See `Deployments.change`."""
        group = self._group_to_deploy(change) if isinstance(change, Deploy) else self._group_with(change.model)
        control = self._groups[group]
        return {**await control.request(Change.of(control.next_number(), change)), "group": group}

    def report(self) -> dict[str, Any]:
        """Returns what is deployed in all groups, by model."""
        return {
            model: {**versions, "group": group}
            for group, control in reversed(list(self._groups.items()))
            for model, versions in control.deployed.items()
        }

    def _group_to_deploy(self, change: Deploy) -> str:
        """Returns the group that a change names, or else the one that has the model, or code of the same target."""
        if change.group and change.group not in self._groups:
            raise InvalidInputError(f"unknown group {change.group!r}; the groups of this gateway are {sorted(self._groups)}")
        if change.group or len(self._groups) == 1:
            return change.group or next(iter(self._groups))
        for group, control in self._groups.items():
            for model, history in control.deployed.items():
                if model == change.model or change.target in [version["target"] for version in history["versions"].values()]:
                    return group
        self._check_all_heard(change.model or change.target)
        raise InvalidInputError(
            f"no group has this model or its code: choose one with --group; available: {sorted(self._groups)}"
        )

    def _group_with(self, model: str) -> str:
        if len(self._groups) == 1:
            return next(iter(self._groups))
        for group, control in self._groups.items():
            if model in control.deployed:
                return group
        self._check_all_heard(model)
        known = sorted({name for control in self._groups.values() for name in control.deployed})
        raise UnknownModelError(f"nothing is deployed as {model!r}; deployed are {known}")

    def _check_all_heard(self, name: str) -> None:
        """Raises `NotReadyError` if a group may have a model, or code, that this gateway does not know yet."""
        if unheard := sorted(group for group, control in self._groups.items() if control.is_unheard):
            raise NotReadyError(f"{name!r} is not known yet: the orchestrators of {unheard} have not reported what is deployed")
