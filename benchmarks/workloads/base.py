"""What a workload is: programs, a flow through them, and a pool of requests with their answers.

A workload is written once, without any serving system: its programs are plain functions of batches (`Program`), and its flow is a
coroutine that asks for programs by name (`Workload.flow`). Each system serves exactly these programs; DyOrc's workflow does what
the flow does, and so does a peer's glue if the peer can run Python. The reference is the flow in one process, one call at a time.

Imported in the peers' environments, so it needs only NumPy, and of DyOrc nothing but `loadgen.pool`. Programs import what they
need when they are made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from benchmarks.devices.program import device_program, recorded_requests
from benchmarks.meter import Meter

Tensors: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
"""Tensors by name: without a batch dimension for one request or call, with a leading one for a batch."""


class Call(Protocol):
    """Runs a program on one item, wherever the program is."""

    def __call__(self, program: str, /, **inputs: np.ndarray[Any, Any]) -> Awaitable[dict[str, np.ndarray[Any, Any]]]: ...


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor of one item.

    Attributes:
        dtype: NumPy's name of the type, e.g. "float32"; "bytes" for a string.
        shape: The shape without the batch dimension; -1 where it varies.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A batched function with its weights.

    Attributes:
        make: Loads the program and returns a function from the stacked inputs of a batch, by name, to its stacked outputs.
        inputs, outputs: The tensors of one item.
        max_batch_size: The largest batch; 1 if it takes one item at a time, which still has the batch dimension.
        widths: Where the last dimension of the inputs varies: items are padded with zeros up to the next of these, so that they
            can be stacked. Empty if no dimension varies, or items are never stacked.
    """

    make: Callable[[], Callable[..., Tensors]]
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    max_batch_size: int
    widths: Sequence[int] = ()


Flow: TypeAlias = Callable[[Call, Tensors], "Awaitable[tuple[dict[str, np.ndarray[Any, Any]], str]]"]
"""Takes a way to call programs and a request's inputs; returns the answer and the name of the branch that it took."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One row of the table.

    Attributes:
        name: The name of its folder.
        summary: What it does, in one line.
        is_dynamic: Whether the data decides which programs run; the goals differ.
        slo_s: How long an answer may take.
        inputs, outputs: The tensors of a request.
        programs: The programs by name.
        flow: The coroutine that takes a request through them.
        draw: Draws the inputs of this many requests from a seed. May leave out requests that a rounding error could decide.
        app: DyOrc's workflow, as ``dyorc serve`` takes it in the repository's root: the file and the name.
        tolerance: See `loadgen.pool.Pool`.
        num_drawn: How many requests the pool has.
        replicas: How many copies of a program every system runs, if not 1.
    """

    name: str
    summary: str
    is_dynamic: bool
    slo_s: float
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    programs: Mapping[str, Program]
    flow: Flow
    draw: Callable[[int, int], Sequence[dict[str, np.ndarray[Any, Any]]]]
    app: str
    tolerance: float = 1e-4
    num_drawn: int = 256
    replicas: Mapping[str, int] = field(default_factory=dict[str, int])


class LoadedProgram:
    """A program with its weights in this process, counted by the meter. Each program uses one thread, since there are few
    cores. It runs on an emulated accelerator if the environment says so (`benchmarks.devices.program`)."""

    def __init__(self, workload: Workload, name: str) -> None:
        self.program = workload.programs[name]
        self._emulated = emulated = device_program(name, self.program)
        self._run = emulated or self.program.make()
        self._meter = Meter(name, (lambda: emulated.device.busy_ns) if emulated else time.thread_time_ns)

    def close(self) -> None:
        """Gives its accelerator back, if it has one. Servers need not: their end does it."""
        if self._emulated is not None:
            self._emulated.device.close()

    def run(self, **inputs: np.ndarray[Any, Any]) -> Tensors:
        """Returns the outputs of a batch from its inputs, both stacked."""
        return self._meter.run(self._run, len(next(iter(inputs.values()))), **inputs)

    def run_items(self, items: Sequence[Tensors]) -> list[dict[str, np.ndarray[Any, Any]]]:
        """Returns the outputs of each of at most `max_batch_size` items: pads and stacks the items, and splits the outputs."""
        if len(items) == 1:
            stacked = {name: array[np.newaxis] for name, array in self._padded(items[0], self._width(items)).items()}
        else:
            padded = [self._padded(item, self._width(items)) for item in items]
            stacked = {name: np.stack([item[name] for item in padded]) for name in self.program.inputs}
        outputs = self.run(**stacked)
        return [{name: np.asarray(array[at, ...]) for name, array in outputs.items()} for at in range(len(items))]

    def _width(self, items: Sequence[Tensors]) -> int:
        if not self.program.widths:
            return 0
        widest = max(array.shape[-1] for item in items for array in item.values())
        return next((width for width in self.program.widths if width >= widest), widest)

    def _padded(self, item: Tensors, width: int) -> Tensors:
        if not width:
            return item
        return {name: np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, width - array.shape[-1])]) for name, array in item.items()}


def probes(workload: Workload, num_requests: int) -> Sequence[Tensors]:
    """Returns requests with which a server can be tried: recorded ones if its programs are emulated."""
    return recorded_requests()[:num_requests] or workload.draw(num_requests, 0)


def answer_alone(workload: Workload, requests: Sequence[Tensors]) -> tuple[list[dict[str, np.ndarray[Any, Any]]], list[str]]:
    """Returns the reference: the requests' answers and branches, computed one call at a time in this process."""
    programs = {name: LoadedProgram(workload, name) for name in workload.programs}

    async def call(program: str, /, **inputs: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        return programs[program].run_items([inputs])[0]

    async def answer_all() -> list[tuple[dict[str, np.ndarray[Any, Any]], str]]:
        return [await workload.flow(call, request) for request in requests]

    answered = asyncio.run(answer_all())
    return [answer for answer, _ in answered], [branch for _, branch in answered]
