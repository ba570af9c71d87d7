"""The gateway's interface to the component that deploys versions, in this process or behind orchestrators."""

from typing import Any, Protocol

from dyorc.protocol.deployment_changes import DeploymentChange


class Deployments(Protocol):
    """Changes which versions are deployed."""

    async def change(self, change: DeploymentChange) -> dict[str, Any]:
        """Deploys, undeploys or rolls back. Returns the model's versions after that, as plain values, once requests get them.

        Raises:
            DyOrcError: If it is not possible; nothing has changed then.
        """
        ...

    def report(self) -> dict[str, Any]:
        """Returns what is deployed, by model."""
        ...
