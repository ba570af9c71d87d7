"""The first tier: names, order, layouts, kinds and arguments, without computing anything.

What it shows. Call a placed tensor *valid* when its ranks hold the pieces of its value that its layout says. If this tier finds
nothing, then sources are valid when ranks begin; each step reads only pieces that an earlier step has made, on the same ranks
and for the same part of the work; each `Apply` computes the program's node, on values that its tensors' lineage names; each
collective and each transfer keeps the value; and the results are the program's. What is left to show is for each distinct step
by itself: if its inputs are valid, so are its outputs. With the order of the steps, the whole plan follows by induction.

Deadlock. All ranks walk one list of steps in one order and each waits only for ranks that are earlier in the list, so no cycle
of waiting can arise; two uses of one group cannot overtake each other. What could break this is a mesh that lists a rank twice
or one that is none, and a step whose tensors lie on other ranks than it runs on: these are findings.

Messages. A static slot holds one message from when its transfer begins until the last step that needs what lies there. All ranks
walk the steps in one order, and the sender waits until the slot is empty. So if the next transfer into a slot comes after that
last step, nothing is lost and no rank waits for ever; if it comes before, the receiver waits for a message that the sender may
not write.

Cost: each step is read once, for any sizes of meshes and tensors. Everything else is checked for distinct steps (plan_index.py)
and for distinct layouts, which repeated layers and microbatches share.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import isinf

from dyorc.planner.plan import Apply, Plan, Transfer
from dyorc.planner.plan.kernels import check_kernels
from dyorc.planner.plan.lifetimes import slot_uses
from dyorc.planner.program import Partial, Shard, TensorProgram
from dyorc.planner.verify.plan_index import PlanIndex
from dyorc.planner.verify.report import Finding, FindingKind
from dyorc.planner.verify.step_checks import StepWalk

STOPPING = frozenset({FindingKind.BAD_MESH, FindingKind.BAD_TENSOR, FindingKind.NO_OUTPUT})
"""Kinds of findings after which steps can be neither run nor checked."""


def check_structure(reading: PlanIndex) -> list[Finding]:
    """Returns what is wrong with the structure of a plan."""
    program, plan = reading.program, reading.plan
    findings = [*_check_program(program, plan), *_check_meshes(plan), *_check_tensors(reading), *_check_outputs(plan)]
    if any(finding.kind in STOPPING for finding in findings):
        return findings
    findings += StepWalk(reading).run()
    findings += (
        Finding(kind=FindingKind.BAD_KERNEL, step=kernel.first, detail=reason) for kernel, reason in check_kernels(program, plan)
    )
    return findings or list(check_edges(plan))


def _check_program(program: TensorProgram, plan: Plan) -> Iterator[Finding]:
    if plan.program != program.digest:
        yield Finding(kind=FindingKind.WRONG_PROGRAM, subject=plan.program[:12], detail=program.digest[:12])


def _check_outputs(plan: Plan) -> Iterator[Finding]:
    for number, step in enumerate(plan.steps):
        if isinstance(step, Apply) and not any(step.outputs):
            yield Finding(kind=FindingKind.NO_OUTPUT, step=number, subject=step.node)


def _check_meshes(plan: Plan) -> Iterator[Finding]:
    for name, mesh in plan.meshes.items():
        if mesh.name != name:
            yield Finding(kind=FindingKind.BAD_MESH, subject=name, detail=f"it calls itself {mesh.name}")
        if any(rank < 0 for rank in mesh.ranks):
            yield Finding(kind=FindingKind.BAD_MESH, subject=name, detail=f"{min(mesh.ranks)} is no rank")
        if len({axis.name for axis in mesh.axes}) != len(mesh.axes):
            yield Finding(kind=FindingKind.BAD_MESH, subject=name, detail="two of its axes have one name")


def _check_tensors(reading: PlanIndex) -> Iterator[Finding]:
    program, plan = reading.program, reading.plan
    faults: dict[tuple[object, ...], str] = {}
    for name, placed in plan.tensors.items():
        value, said = program.values.get(placed.value), plan.values.get(placed.value)
        if value is None:
            yield Finding(kind=FindingKind.BAD_TENSOR, subject=name, detail=f"the program has no value {placed.value}")
        elif said is not value and said != value:
            yield Finding(kind=FindingKind.BAD_TENSOR, subject=name, detail=f"the plan says {said}, the program {value}")
        elif placed.mesh not in plan.meshes:
            yield Finding(kind=FindingKind.BAD_TENSOR, subject=name, detail=f"there is no mesh {placed.mesh}")
        else:
            key = value.shape, value.dtype, reading.spots[name]
            if key not in faults:
                faults[key] = _fault_of_layout(plan, name)
            if faults[key]:
                yield Finding(kind=FindingKind.BAD_TENSOR, subject=name, detail=faults[key])


def _fault_of_layout(plan: Plan, tensor: str) -> str:
    placed, mesh = plan.tensors[tensor], plan.mesh_of(tensor)
    value = plan.values[placed.value]
    if len(placed.layout) != len(mesh.axes):
        return f"{len(placed.layout)} placements for {len(mesh.axes)} axes"
    left = list(value.shape)
    for axis, placement in zip(mesh.axes, placed.layout, strict=True):
        if isinstance(placement, Partial) and value.dtype == "bool":
            return f"truth values are no sum, along {axis.name}"
        if not isinstance(placement, Shard):
            continue
        if not 0 <= placement.dim < len(left):
            return f"there is no dimension {placement.dim} to cut along {axis.name}"
        sizes = placement.sizes
        if sizes is None or len(sizes) != axis.size or min(sizes) < 0:
            return f"{placement} does not say a size for each of the {axis.size} steps of {axis.name}"
        if left[placement.dim] != sum(sizes):
            return f"{placement} divides {sum(sizes)} along {axis.name}, and there are {left[placement.dim]} to divide"
        left[placement.dim] = sizes[0] if len(set(sizes)) == 1 else -1  # who cuts inside an uneven cut cannot fit all of it
    return ""


def check_edges(plan: Plan) -> Iterator[Finding]:
    """Yields what is wrong with the edges of transfers."""
    is_wrong = False
    for number, step in enumerate(plan.steps):
        if isinstance(step, Transfer) and step.edges and (reason := _fault(plan, step)):
            is_wrong = True
            yield Finding(kind=FindingKind.BAD_EDGE, step=number, detail=reason)
    for (source, target, slot), uses in slot_uses(plan).items() if not is_wrong else ():
        for (first, _, last), (second, _, _) in pairwise(uses):
            if second <= last:
                subject = f"slot {slot} from rank {source} to rank {target}"
                until = "the end" if isinf(last) else f"step {last:.0f}"
                detail = f"until {until}; step {first} sent it"
                yield Finding(kind=FindingKind.SLOT_OVERWRITTEN, step=second, subject=subject, detail=detail)
                break


def _fault(plan: Plan, step: Transfer) -> str:
    pairs = [edge.pair for edge in step.edges]
    for edge in step.edges:
        if edge.source not in plan.mesh_of(step.source).ranks or edge.target not in plan.mesh_of(step.target).ranks:
            return f"{step.source} does not go from rank {edge.source} to rank {edge.target}"
        if edge.source == edge.target:
            return f"an edge leads from rank {edge.source} to itself"
        if pairs.count(edge.pair) > 1:
            return f"there are several edges from rank {edge.source} to rank {edge.target}"
        if edge.slot < 0:
            return f"{edge.slot} is no slot"
    return ""
