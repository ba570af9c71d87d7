"""A program on an emulated accelerator, in place of the model. Imported in the peers' environments.

A server runs such programs if its environment names the folder of their recordings (`FOLDER_VARIABLE`), whatever system it is:
all of them load programs as `benchmarks.workloads.base.LoadedProgram`. Their devices are files in the folder that
`DEVICES_VARIABLE` names, one folder for each server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.devices.device import Device
from benchmarks.devices.recorded import Array, Recorded
from benchmarks.devices.times import DeviceTime
from loadgen.pool import Pool

FOLDER_VARIABLE = "BENCHMARK_DEVICES"
DEVICES_VARIABLE = "BENCHMARK_DEVICE_LOCKS"
TIMES_FILE = "times.json"
REQUESTS_FILE = "requests.npz"


def has_devices() -> bool:
    """Whether programs run on emulated accelerators in this process."""
    return FOLDER_VARIABLE in os.environ


def device_time(program: str) -> DeviceTime | None:
    """Returns T(n) of a program on its emulated accelerator; None if there is none."""
    if not has_devices():
        return None
    return DeviceTime(*json.loads((Path(os.environ[FOLDER_VARIABLE]) / TIMES_FILE).read_text())[program])


OPTIONS: dict[str, Any] = {"ray_actor_options": {"num_gpus": 1}} if has_devices() else {}
"""For DyOrc's programs: each has its own accelerator, if they are emulated."""


class Inputs(Protocol):
    """What an emulated program has to know of the one it stands for; a `benchmarks.workloads.base.Program` does."""

    @property
    def inputs(self) -> Mapping[str, Any]: ...
    @property
    def widths(self) -> Any: ...


class DeviceProgram:
    """Returns recorded results after T(n)."""

    def __init__(self, program: Inputs, recorded: Recorded, device: Device) -> None:
        self._names = tuple(program.inputs)
        self._is_padded = bool(program.widths)
        self._recorded = recorded
        self.device = device

    def __call__(self, *, out: Array | None = None, **inputs: Array) -> dict[str, Array]:
        """Returns the outputs of a batch, stacked; written to `out` if that is given and there is one output.

        Like a device's, they are written anew each time. Handing out what is recorded would spare servers that give a program no
        place to write to what the others pay.
        """
        size = len(inputs[self._names[0]])
        with self.device.batch(size):
            return self._outputs(inputs, size, out)

    def _outputs(self, inputs: Mapping[str, Array], size: int, out: Array | None) -> dict[str, Array]:
        rows = [
            self._recorded.outputs({name: inputs[name][at, ...] for name in self._names}, self._is_padded) for at in range(size)
        ]
        if out is None:
            return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        (name,) = rows[0]
        for at, row in enumerate(rows):
            out[at] = row[name]
        return {name: out}


def device_program(name: str, program: Inputs) -> DeviceProgram | None:
    """Returns the emulated program if the environment asks for it; the server's processes that load it share a device."""
    time = device_time(name)
    if time is None:
        return None
    lock_file = Path(os.environ[DEVICES_VARIABLE]) / name
    lock_file.touch()
    return DeviceProgram(program, Recorded.load(Path(os.environ[FOLDER_VARIABLE]) / f"{name}.npz"), Device(time, lock_file))


def recorded_requests() -> Sequence[Mapping[str, Array]]:
    """Returns the requests for which results are recorded; none if the environment does not ask for emulated programs."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Pool.load(Path(folder) / REQUESTS_FILE).inputs if folder else ()
