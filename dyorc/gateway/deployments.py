"""What the gateway needs of whoever deploys versions: in this process, or where the workflows run."""

from typing import Any, Protocol

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A version to deploy.

    Attributes:
        target: What to load, such as ``app.py:classify``; empty: what the default was loaded from, or a version that is known.
        model: The name that the target must have; empty: any.
        version: Its name; empty: the next whole number.
        group: Which group of orchestrators is to have it, where there are several; empty: the only one, or the one that has it.
        share: Its part of the requests that name no version. With all of them (1), it becomes the default.
        is_fresh: Whether it shares no program with other versions.
        is_incompatible_allowed: Whether it may take the place of one with other inputs or outputs.
    """

    target: str = ""
    model: str = ""
    version: str = ""
    group: str = ""
    share: float = 1.0
    is_fresh: bool = False
    is_incompatible_allowed: bool = False


class Deployments(Protocol):
    """Changes what is deployed. Each returns the model's versions after that, as plain values, once requests get them.

    Raises:
        DyOrcError: If it is not possible; nothing has changed then.
    """

    async def deploy(self, order: Order) -> dict[str, Any]:
        """Loads a version and gives it a share of the requests."""
        ...

    async def undeploy(self, model: str, version: str | None = None) -> dict[str, Any]:
        """Takes a version, or the whole model, out of service."""
        ...

    async def rollback(self, model: str) -> dict[str, Any]:
        """Takes the last change of a model back."""
        ...

    def report(self) -> dict[str, Any]:
        """Returns what is deployed, by model."""
        ...
