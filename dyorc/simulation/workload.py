"""A workload: a workflow, and what its programs cost on simulated replicas."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float64

from dyorc.authoring.program import Program, program
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.core.tensor import TensorRef
from dyorc.errors import InvalidInputError
from dyorc.simulation.value_draws import draw, draw_parts

Compute: TypeAlias = Callable[[Sequence[TensorRef]], tuple[TensorRef, ...]]
Number: TypeAlias = Float64[np.ndarray, ""]
"""The tensors between the programs of a workload."""
Numbers: TypeAlias = Float64[np.ndarray, " batch"]
"""The same for a batch."""
MAX_QUEUED_CALLS = 2**31
"""For every simulated program: long queues are shown, not refused."""
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A program with its cost and its replicas.

    A batch of n calls takes ``base_s + item_s * n`` seconds, or as long as was measured. If the program declares what a call
    costs, n is the cost of the batch; if it yields, see `dyorc.simulation.yielding`;
    if it reads a stream, see `dyorc.simulation.reading`.

    Attributes:
        compute: Returns the outputs of one call from its inputs, which carry their data; by default what `draw` would return.
        measured: Sizes of batches and their seconds, by size; linear between them. From 1 up to at least `max_batch_size`;
            then there is no `base_s` and no `item_s`.
        mean_cost: What a call costs on average, if the program declares a cost, or how many parts it reads, if it reads a
            stream: for the saturation rate.
        resident_item_bytes: What a call adds to the bytes of the residents that it takes, for each unit of its cost, or for the
            call if it declares none; all residents that it returns are of that size.

    Raises:
        InvalidInputError: If the measured times leave out sizes, are not positive, or come with a line; or if the program reads
            several streams.
    """

    program: Program
    base_s: float = 0.0
    item_s: float = 0.0
    num_replicas: int = 1
    measured: Sequence[tuple[int, float]] = ()
    compute: Compute | None = None
    mean_cost: float = 1.0
    resident_item_bytes: int = 0

    def __post_init__(self) -> None:
        if len(self.program.signature.streams) > 1:
            raise InvalidInputError(f"program {self.program.name!r} reads several streams; a simulated one reads at most one")
        if not self.measured:
            return
        name, max_size = self.program.name, self.program.options.max_batch_size
        sizes = [size for size, _ in self.measured]
        if sizes[0] != 1 or sizes[-1] < max_size or any(after <= size for size, after in pairwise(sizes)):
            raise InvalidInputError(
                f"program {name!r} was measured at sizes {sizes}, expected ascending ones from 1 to {max_size}"
            )
        if not all(0 < seconds < math.inf for _, seconds in self.measured):
            raise InvalidInputError(f"program {name!r} was measured as {list(self.measured)}, expected times above 0")
        if self.base_s or self.item_s:
            raise InvalidInputError(f"program {name!r} has a line and measured times, expected one of them")

    def batch_ns(self, size: float) -> int:
        """Returns the time of a batch of this size, or cost, in nanoseconds."""
        if not self.measured:
            return round(self.base_s * NS_PER_S) + round(round(self.item_s * NS_PER_S) * size)
        sizes, seconds = zip(*self.measured, strict=True)
        return round(float(np.interp(size, sizes, seconds)) * NS_PER_S)

    def cost_ns(self, calls: Sequence[Sequence[TensorRef]], statics: tuple[StaticValue, ...]) -> int:
        """Returns the time of a batch of a program that declares what a call costs, in nanoseconds."""
        call_cost = self.program.call_cost
        return self.batch_ns(len(calls) if call_cost is None else sum(call_cost.compute(call, statics) for call in calls))

    def added_bytes(self, operands: Sequence[TensorRef], statics: tuple[StaticValue, ...]) -> int:
        """Returns by how much a call's residents are larger than what it takes."""
        call_cost = self.program.call_cost
        return round(self.resident_item_bytes * (1 if call_cost is None else call_cost.compute(operands, statics)))

    def parts_of(self, operands: Sequence[TensorRef]) -> list[float]:
        """Returns what a call of a program that yields will yield."""
        return draw_parts(self.program.name, float(operands[0].data), self.program.options.max_parts)

    @property
    def full_batch_item_s(self) -> float:
        """A call's share of a full batch, in seconds; of a program that yields, its share of a replica's time."""
        program, max_size = self.program, self.program.options.max_batch_size
        if program.signature.streams:
            return (self.base_s + self.item_s * self.mean_cost) / program.max_ongoing
        if program.is_streaming:
            return (self.base_s + self.item_s * (1 + program.options.max_parts) / 2) / program.max_ongoing
        if (max_cost := program.options.max_batch_cost) is not None:
            return self.item_s * self.mean_cost + self.base_s / min(max_size, max(1.0, max_cost / self.mean_cost))
        return self.batch_ns(max_size) / NS_PER_S / max_size if self.measured else self.item_s + self.base_s / max_size


def drawn_program(name: str, max_batch_size: int = 32) -> Any:
    """Makes a program that takes a number and returns one, drawn by `draw`."""

    @program(name=name, max_batch_size=max_batch_size, max_queued_calls=MAX_QUEUED_CALLS)
    def compute(number: Numbers) -> Numbers:
        return draw(name, number)

    return compute


@dataclass(frozen=True, eq=False)
class Workload:
    """What is simulated: requests of one workflow.

    Attributes:
        name: Its name on the command line.
        workflow: Takes one number (see `dyorc.simulation.value_draws`) and returns one, or yields some.
        deployments: Every program that it calls.
    """

    name: str
    workflow: Workflow
    deployments: tuple[Deployment, ...]

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        return tuple(deployment.program for deployment in self.deployments)

    def num_replicas(self, replicas: int | Mapping[str, int] | None) -> dict[str, int]:
        """Returns replicas by program: the workload's own numbers, one number for all programs, or one for each.

        Raises:
            InvalidInputError: If a program gets none, or is unknown.
        """
        chosen = {deployment.program.name: deployment.num_replicas for deployment in self.deployments}
        if isinstance(replicas, int):
            chosen = dict.fromkeys(chosen, replicas)
        elif replicas is not None:
            if unknown := sorted(set(replicas) - set(chosen)):
                raise InvalidInputError(f"workload {self.name!r} has no programs {unknown}; it has {sorted(chosen)}")
            chosen.update(replicas)
        for name, number in chosen.items():
            if number < 1:
                raise InvalidInputError(f"program {name!r} gets {number} replicas, expected at least 1")
        for group, names in self.groups.items():
            if len({chosen[name] for name in names}) > 1:
                numbers = {name: chosen[name] for name in names}
                raise InvalidInputError(f"the programs of group {group!r} share processes, and get {numbers} replicas")
        return chosen

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """The names of the programs of each group."""
        groups: dict[str, list[str]] = {}
        for member in self.programs:
            if member.options.group is not None:
                groups.setdefault(member.options.group, []).append(member.name)
        return groups
