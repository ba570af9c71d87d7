"""A distributed plan: all that ranks need to run a program together, and all that a proof needs to show that it is the same
program.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Literal, TypeAlias

from dyorc.errors import PlanError
from dyorc.planner.plan.layout import Coordinate, Layout, Mesh, Region, extents, region_of
from dyorc.planner.plan.steps import Step
from dyorc.planner.program import Replicate, TensorProgram, Value
from dyorc.planner.program.graph import type_sizes

MachinePair: TypeAlias = tuple[str, str]
"""A machine that sends, and one that receives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What one machine may send to another through one of its interfaces.

    Attributes:
        source: The machine that sends.
        target: The one that receives.
        interface: The source's interface.
        bytes_per_s: What is reserved for it.
    """

    source: str
    target: str
    interface: str
    bytes_per_s: float

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0:
            raise PlanError(
                f"what {self.source} may send to {self.target} must be above 0 bytes a second, not {self.bytes_per_s}"
            )


@dataclass(frozen=True, kw_only=True)
class Network:
    """The limits of a plan.

    Attributes:
        limits: At most one for each source, target and interface. Between machines that are not named nothing is limited.
        is_strict: Whether a limit holds even while others leave their part unused. Otherwise unused bandwidth is lent, in the
            ratios of the limits.
    """

    limits: tuple[Limit, ...]
    is_strict: bool = True

    def __post_init__(self) -> None:
        names = [(limit.source, limit.target, limit.interface) for limit in self.limits]
        for name in names:
            if names.count(name) > 1:
                raise PlanError(f"there are several limits from {name[0]} to {name[1]} through {name[2]}")

    @cached_property
    def rates(self) -> Mapping[MachinePair, float]:
        """What is reserved for each pair of machines, through all interfaces together."""
        rates: dict[MachinePair, float] = {}
        for limit in self.limits:
            pair = limit.source, limit.target
            rates[pair] = rates.get(pair, 0.0) + limit.bytes_per_s
        return rates

    def of_source(self, machine: str) -> Iterator[Limit]:
        """Yields the limits of one machine's way out."""
        return (limit for limit in self.limits if limit.source == machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A tensor as it lies on a mesh: which value of the program it is, and which piece of it each rank holds (its lineage).

    Attributes:
        value: The value of the program.
        mesh: The mesh's name.
        layout: One placement for each axis of the mesh.
    """

    value: str
    mesh: str
    layout: Layout


class SearchEnd(StrEnum):
    """How the search for a plan ended."""

    FINISHED = "finished"  # by itself
    INTERRUPTED = "interrupted"  # by Ctrl-C, with the best plan so far
    DEADLINE = "deadline"  # its time was over, with the best plan so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a plan comes from.

    Attributes:
        planner: The planner's name.
        seed: Of its random numbers; 0 if it draws none.
        cost_s: The seconds of one step that it predicts, or None.
        search_s: The seconds it searched. Not part of the plan's digest.
        ended: How the search ended.
        notes: What else it says for people: bounds, ratios.
    """

    planner: str
    seed: int = 0
    cost_s: float | None = None
    search_s: float | None = None
    ended: SearchEnd = SearchEnd.FINISHED
    notes: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCheck:
    """How the plan's program was compared with the module that it was captured from, before it was planned.

    Attributes:
        num_seeds: How often both ran, each time on other weights and inputs.
        dtype: In which type: `float64`, or `own`, those of the module.
        num_results: How many results were compared: loss or answers, gradients and buffers.
        largest_difference: Of any element, relative to the largest element of its tensor.
    """

    num_seeds: int
    dtype: Literal["float64", "own"]
    num_results: int
    largest_difference: float

    def __str__(self) -> str:
        types = "float64" if self.dtype == "float64" else "the module's own types"
        return (
            f"{self.num_results:,} results on {self.num_seeds} sets of weights and inputs, in {types}; they differ by "
            f"{self.largest_difference:.1e} at most"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What a plan of a model that answers takes and returns.

    Attributes:
        inputs: In the order of the module's arguments.
        outputs: In the order in which the module returns them.
        max_samples: The number of samples for which the plan was made, and proved: the most that may come at once.
        batch_dims: For each value that grows with the number of samples, the dimensions that do.
        is_proved: Whether the plan has been proved as it is.
        call_structure: How the module takes its inputs, as torch's pytree writes it; empty: by position.
        answer_structure: How it puts its outputs together; empty: a tensor, or a tuple of several.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    max_samples: int
    batch_dims: Mapping[str, tuple[int, ...]]
    is_proved: bool = False
    call_structure: str = ""
    answer_structure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How a kernel makes what it reduces: one slice after another, each while the one before is on its way round the ring.

    Attributes:
        num_steps: How many of the kernel's steps make it; they come first.
        order: Which slice each rank makes first, second, ...: how many places along the axis after its own.
        cuts: For each placed tensor of these steps that a slice needs, or is, a part of only: along which dimension.
    """

    num_steps: int
    order: tuple[int, ...]
    cuts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Steps that ranks do as one, in chunks: a reduce-scatter, what runs on its slices, and all-gathers of what that makes.

    It may begin with what makes the terms of the sum. It says how steps are done, not what they make: the plan computes the same
    without it.

    Attributes:
        first: The index of its first step.
        end: One more than the index of its last.
        num_chunks: Into how many chunks each slice is cut.
        overlap: How the terms are made, if the kernel does that, too.
    """

    first: int
    end: int
    num_chunks: int
    overlap: Overlap | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A distributed plan.

    Attributes:
        program: The digest of the program that it distributes.
        values: The program's values that it places, by name: shapes and types, so that a plan can be read by itself.
        target: Where the program can be captured again: `module.py:make_model`, or empty.
        cluster: The digest of the cluster that it was made for, or empty.
        meshes: By name.
        tensors: Every placed tensor, by id.
        sources: For each source of the program, the placed tensors that ranks begin with.
        steps: What is done, in order.
        results: For each result of the program, the placed tensor that it is in the end.
        provenance: Where it comes from.
        network: What each machine may send to each other, if that is limited.
        inference: What it takes and returns, if it is of a model that answers; None for a training step.
        kernels: Runs of steps that are done as one, in order.
        module_check: How its program was compared with the module; None if that was skipped.
    """

    program: str
    values: Mapping[str, Value]
    target: str = ""
    cluster: str = ""
    meshes: Mapping[str, Mesh]
    tensors: Mapping[str, Placed]
    sources: Mapping[str, tuple[str, ...]]
    steps: tuple[Step, ...]
    results: Mapping[str, str]
    provenance: Provenance
    network: Network | None = None
    inference: Inference | None = None
    kernels: tuple[Kernel, ...] = ()
    module_check: ModuleCheck | None = None

    @cached_property
    def num_ranks(self) -> int:
        """How many ranks take part: one more than the highest."""
        return 1 + max(rank for mesh in self.meshes.values() for rank in mesh.ranks)

    def mesh_of(self, tensor: str) -> Mesh:
        """The mesh that a placed tensor lies on."""
        return self.meshes[self.tensors[tensor].mesh]

    def region(self, tensor: str, coordinate: Coordinate) -> Region:
        """The region of the value that the piece of a placed tensor at a coordinate covers."""
        placed = self.tensors[tensor]
        return region_of(self.values[placed.value].shape, placed.layout, coordinate)

    def piece_shape(self, tensor: str, coordinate: Coordinate) -> tuple[int, ...]:
        """The shape of a piece."""
        return extents(self.region(tensor, coordinate))

    def piece_bytes(self, tensor: str, coordinate: Coordinate) -> int:
        """The bytes of a piece."""
        value = self.values[self.tensors[tensor].value]
        return prod(self.piece_shape(tensor, coordinate)) * type_sizes[value.dtype]

    def varies_in_time(self, tensor: str) -> bool:
        """Whether each part of the work has its own piece."""
        axis = self.mesh_of(tensor).time_axis
        return axis is not None and not isinstance(self.tensors[tensor].layout[axis], Replicate)

    def part_of(self, tensor: str, part: int | None) -> int:
        """The part under which a rank holds the piece that a step of that part reads or makes."""
        return (part or 0) if self.varies_in_time(tensor) else 0

    def check_program(self, program: TensorProgram) -> None:
        """Refuses a program that the plan was not made for.

        Raises:
            PlanError: It is another program, or the same one with other shapes.
        """
        if program.digest != self.program:
            raise PlanError(
                f"the plan is for a program with digest {self.program[:12]}; {program.name} has {program.digest[:12]}: it is "
                "another model, or its code or shapes have changed: plan it again"
            )
