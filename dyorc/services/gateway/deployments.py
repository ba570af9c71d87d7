"""Deploys by the orchestrators of groups: finds the group, and has its leader do it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dyorc.errors import InvalidInputError, UnknownModelError
from dyorc.gateway.deployments import Order
from dyorc.remote.control_client import BeginEra, GroupControl


class ControlClient:
    """A gateway's `Deployments`.

    Args:
        groups: The ways to their orchestrators; if several groups have a model, the first of them is meant.
    """

    def __init__(self, groups: Mapping[str, GroupControl]) -> None:
        self._groups = groups

    def settle_by(self, begin_era: BeginEra) -> None:
        """Has old versions kept until the requests have ended that this gateway had when they were replaced."""
        for orders in self._groups.values():
            orders.begin_era = begin_era

    async def deploy(self, order: Order) -> dict[str, Any]:
        """See `Deployments.deploy`."""
        group = order.group or self._group_of(order)
        if group not in self._groups:
            raise InvalidInputError(f"there is no group {group!r} behind this gateway; there are {sorted(self._groups)}")
        return await self._place(group, "deploy", msgspec.to_builtins(order))

    async def undeploy(self, model: str, version: str | None = None) -> dict[str, Any]:
        """See `Deployments.undeploy`."""
        return await self._place(self._having(model), "undeploy", {"model": model, "version": version})

    async def rollback(self, model: str) -> dict[str, Any]:
        """See `Deployments.rollback`."""
        return await self._place(self._having(model), "rollback", {"model": model})

    def report(self) -> dict[str, Any]:
        """Returns what is deployed in all groups, by model."""
        return {
            model: {**line, "group": group}
            for group, orders in reversed(list(self._groups.items()))
            for model, line in orders.deployed.items()
        }

    async def _place(self, group: str, action: str, values: dict[str, Any]) -> dict[str, Any]:
        return {**await self._groups[group].place(action, values), "group": group}

    def _group_of(self, order: Order) -> str:
        """Returns the group that has the model, or code from there."""
        if len(self._groups) == 1:
            return next(iter(self._groups))
        for group, orders in self._groups.items():
            for model, line in orders.deployed.items():
                if model == order.model or order.target in [one["target"] for one in line["versions"].values()]:
                    return group
        raise InvalidInputError(f"name the group that is to have it (--group); there are {sorted(self._groups)}")

    def _having(self, model: str) -> str:
        if len(self._groups) == 1:
            return next(iter(self._groups))
        for group, orders in self._groups.items():
            if model in orders.deployed:
                return group
        known = sorted({one for orders in self._groups.values() for one in orders.deployed})
        raise UnknownModelError(f"nothing is deployed as {model!r}; deployed are {known}")
