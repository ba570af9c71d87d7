"""What of a plan's schedule can be counted: bytes on the wire, temporaries, and what lasts from step to step."""

from dataclasses import dataclass

from dyorc.planner.plan import Apply, Collective, CollectiveKind, Plan
from dyorc.planner.plan.kernels import parts_of
from dyorc.planner.program import TensorProgram, ValueKind
from dyorc.planner.program.graph import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of the first rank.

    Attributes:
        wire_bytes: What all ranks send in rings: of an all-reduce twice, of the others once the whole for each rank but one.
        num_temporaries: How many tensors or slices of the optimizer are there as a whole only to be read again.
        temporary_bytes: Their bytes, and the most bytes that kernels hold of a chunk.
        state_bytes: What lasts of the optimizer's states.
    """

    wire_bytes: int
    num_temporaries: int
    temporary_bytes: int
    state_bytes: int


def figures_of(plan: Plan, program: TensorProgram) -> Figures:
    """Counts."""
    inside = {index for kernel in plan.kernels for index in range(kernel.first, kernel.end)}
    wanted = set(plan.results.values())
    temporaries = [
        name
        for index, step in enumerate(plan.steps)
        if isinstance(step, Apply) and program.node_named[step.node].phase is Phase.UPDATE and index not in inside
        for name in step.outputs
        if name and name not in wanted and program.values[plan.tensors[name].value].shape
    ]
    chunks = 0
    for kernel in plan.kernels:
        parts = parts_of(plan, kernel)
        made = set(parts.kept(plan)) | {g.source for g in parts.gathers}
        live = parts.live_bytes(plan, lambda name, made=made: 0 if name in made else _bytes(plan, name))
        chunks = max(chunks, -(-live // kernel.num_chunks))
    states = [name for name in plan.sources if program.values[name].kind is ValueKind.STATE and program.values[name].shape]
    return Figures(
        wire_bytes=sum(_sent(plan, step) for step in plan.steps if isinstance(step, Collective)),
        num_temporaries=len(temporaries),
        temporary_bytes=sum(_bytes(plan, name) for name in temporaries) + chunks,
        state_bytes=sum(_bytes(plan, tensor) for name in states for tensor in plan.sources[name][:1]),
    )


def _bytes(plan: Plan, tensor: str) -> int:
    return plan.piece_bytes(tensor, plan.mesh_of(tensor).coordinates[0])


def _sent(plan: Plan, step: Collective) -> int:
    mesh = plan.mesh_of(step.source)
    num = mesh.axes[mesh.axis_index(step.axis)].size
    whole = plan.values[plan.tensors[step.source].value].num_bytes
    match step.kind:
        case CollectiveKind.ALL_REDUCE:
            return 2 * (num - 1) * whole
        case CollectiveKind.ALL_GATHER | CollectiveKind.REDUCE_SCATTER:
            return (num - 1) * whole
        case _:
            return 0
