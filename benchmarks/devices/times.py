"""T(n) = b + a n of each program on an accelerator, from published figures (`times.toml`).

Imported in the peers' environments.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_FILE = Path(__file__).with_name("times.toml")


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """How long an accelerator takes for a batch: ``base_s + item_s * n`` seconds."""

    base_s: float
    item_s: float

    def batch_s(self, size: int) -> float:
        """Returns the seconds for a batch of this size."""
        return self.base_s + self.item_s * size


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """The published model that stands for a program.

    Attributes:
        max_deviation: How far the line is from a published time at most, as a fraction of it; 0 if the line itself is given.
    """

    name: str
    what: str
    source: str
    time: DeviceTime
    max_deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDevices:
    """A workload on accelerators.

    Attributes:
        models: For each program, the model that stands for it.
        num_requests: How many different requests are sent at most; None for as many as there are.
    """

    slo_s: float
    models: Mapping[str, DeviceModel]
    num_requests: int | None

    @property
    def times(self) -> dict[str, DeviceTime]:
        """T(n) of each program."""
        return {name: model.time for name, model in self.models.items()}


def fitted(points_ms: Sequence[tuple[int, float]]) -> DeviceTime:
    """Returns the line whose relative distances from published times are smallest (least squares), with no negative part."""
    sizes, times_s = (np.array(column, float) for column in zip(*points_ms, strict=True))
    times_s = times_s / 1e3
    columns = np.stack([1 / times_s, sizes / times_s], axis=1)
    (base_s, item_s), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)
    if base_s < 0:
        base_s, item_s = 0.0, 1 / np.mean(sizes / times_s)
    return DeviceTime(round(float(base_s), 6), round(float(item_s), 7))


def on_devices(workload: str) -> OnDevices:
    """Returns what a workload's programs cost on accelerators.

    Raises:
        KeyError: If the workload, or a model of it, is not in the file.
    """
    content = _content()
    figures = content["workloads"][workload]
    return OnDevices(
        slo_s=figures["slo_ms"] / 1e3,
        models={program: _model(model, content["models"][model]) for program, model in figures["programs"].items()},
        num_requests=figures.get("num_requests"),
    )


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text())


def _model(name: str, entry: Mapping[str, Any]) -> DeviceModel:
    points = [(int(size), float(ms)) for size, ms in entry.get("points_ms", ())]
    time = fitted(points) if points else DeviceTime(entry["base_ms"] / 1e3, entry["item_ms"] / 1e3)
    deviation = max((abs(time.batch_s(size) * 1e3 / ms - 1) for size, ms in points), default=0.0)
    return DeviceModel(name=name, what=entry["what"], source=entry["source"], time=time, max_deviation=deviation)
