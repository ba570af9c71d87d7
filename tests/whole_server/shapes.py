"""Where programs run: in the orchestrator's process, in processes of their own, or both."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """Where programs run.

    Attributes:
        name: As reports show it.
        has_replicas: Whether any program has replicas in processes of its own.
        in_process: Programs that run in the orchestrator's process all the same.
    """

    name: str
    has_replicas: bool
    in_process: tuple[str, ...] = ()

    def settings(self, deployment: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings that say so.

        Args:
            deployment: Other settings of that section.
        """
        if not self.has_replicas:
            return {"in_process": True, "deployment": deployment}
        programs = {program: {"in_process": True} for program in self.in_process}
        return {"deployment": {**deployment, "ray_address": "virtual"}, "programs": programs}


SHAPES = (
    Shape("cells", has_replicas=False),
    Shape("replicas", has_replicas=True),
    Shape("mixed", has_replicas=True, in_process=("doubles", "squares")),
)
"""What the seed draws from."""
