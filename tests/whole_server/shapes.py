"""Where programs run: in the orchestrator's process, in processes of their own, or both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Shape:
    """Where programs run.

    Attributes:
        name: As reports show it.
        settings: The settings that say so.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


_CLUSTER = {"in_process": False, "deployment": {"ray_address": "virtual"}}

SHAPES = (
    Shape("cells", {"in_process": True}),
    Shape("replicas", _CLUSTER),
    Shape("mixed", {**_CLUSTER, "programs": {"doubles": {"in_process": True}, "squares": {"in_process": True}}}),
)
"""What the seed draws from."""
