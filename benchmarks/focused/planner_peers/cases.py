"""The models and clusters that all planners are asked about, ours and others alike.

The programs that ask other planners import this in environments of their own: it needs torch and DyOrc's models, nothing else.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from dyorc.planner.models import gpt, llama

Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of a cluster, each with one device, and the network between them.

    Attributes:
        name: For people.
        speeds: Of each device, as multiples of `flops_per_s`.
        flops_per_s: What a device reaches.
        memory_bytes_per_s: How fast operations read and write.
        overhead_s: What each operation takes besides, or takes at least.
        bytes_per_s: Of the network, in each direction.
        latency_s: Of the network.
    """

    name: str
    speeds: tuple[float, ...]
    flops_per_s: float = 300e12
    memory_bytes_per_s: float = 2.4e12
    overhead_s: float = 7e-6
    bytes_per_s: float = 50e9
    latency_s: float = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model on one cluster.

    Attributes:
        model: A name in `MODELS`.
        machines: The cluster.
    """

    model: str
    machines: Machines

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.model} on {self.machines.name}"

    def question(self, **more: Any) -> dict[str, Any]:
        """What a program that asks a planner is told, as JSON; `more` is for this planner alone."""
        return {"model": self.model, "machines": asdict(self.machines)} | more


@dataclass(frozen=True, slots=True)
class Size:
    """A model and its sizes. Dimensions that mean different things differ, so that graphs can be compared by shape."""

    kind: str
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])


MODELS = {
    "mlp": Size("mlp", {"layers": 4, "hidden": 4096, "batch": 2048}),
    "gpt-2": Size("gpt", {"layers": 2, "hidden": 1024, "heads": 16, "vocabulary": 32_768, "sequence": 512, "batch": 16}),
    "gpt-4": Size("gpt", {"layers": 4, "hidden": 1024, "heads": 16, "vocabulary": 32_768, "sequence": 512, "batch": 16}),
    "llama": Size(
        "llama",
        {
            "layers": 1,
            "hidden": 2048,
            "heads": 16,
            "kv_heads": 8,
            "inner": 7168,
            "vocabulary": 32_768,
            "sequence": 512,
            "batch": 16,
        },
    ),
}
"""By the name that results have; `gpt-2` has two layers."""


class _Mlp(nn.Module):
    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        extents = [hidden // 2, *[hidden, 2 * hidden] * (layers // 2)]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(extents)])
        self.last = nn.Linear(extents[-1], 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        out = self.last(x)
        return (out * out).mean()


def build(name: str) -> Model:
    """Returns a model whose call returns its loss, without weights, and a batch for it."""
    size = MODELS[name]
    with torch.device("meta"):
        if size.kind == "mlp":
            module = _Mlp(size.sizes["layers"], size.sizes["hidden"])
            return module, (torch.empty(size.sizes["batch"], size.sizes["hidden"] // 2),)
        return {"gpt": gpt, "llama": llama}[size.kind](**size.sizes)


def even(num_devices: int) -> Machines:
    """Returns a cluster of equal devices."""
    return Machines(name=f"{num_devices} equal devices", speeds=(1.0,) * num_devices)


def uneven(num_devices: int) -> Machines:
    """Returns a cluster whose first half is twice as fast as the rest."""
    half = num_devices // 2
    return Machines(name=f"{half} fast, {half} slow devices", speeds=(1.0,) * half + (0.5,) * half)


CASES = {
    "full": tuple(Case(model=model, machines=even(n)) for model in MODELS for n in (2, 4, 8))
    + tuple(Case(model=model, machines=uneven(n)) for model in ("gpt-2", "gpt-4") for n in (4, 8)),
    "quick": (
        Case(model="mlp", machines=even(2)),
        Case(model="gpt-2", machines=even(4)),
        Case(model="gpt-2", machines=uneven(4)),
    ),
}
"""By the size of the benchmark."""
