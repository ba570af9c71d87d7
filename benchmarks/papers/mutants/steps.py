"""Faults of steps: left out, too early, twice, something else, or on other tensors."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.papers.mutants.places import Mutation, first, like, reading, with_steps
from dyorc.planner.plan import Apply, Collective, CollectiveKind, Overlap, Plan, Step, Transfer
from dyorc.planner.program import PARTIAL, TensorProgram


def _drop_and_read_the_source(*kinds: CollectiveKind) -> Mutation:
    """Leaves a collective out, and the readers of its target read its source: the flow of data stays whole."""

    def mutate(program: TensorProgram, plan: Plan) -> Plan | None:
        for number, step in enumerate(plan.steps):
            if isinstance(step, Collective) and step.kind in kinds:
                names = {step.target: step.source}
                later = [reading(other, names) for other in plan.steps[number + 1 :]]
                results = {value: names.get(tensor, tensor) for value, tensor in plan.results.items()}
                return replace(plan, steps=(*plan.steps[:number], *later), results=results)
        return None

    return mutate


def _drop(kind: CollectiveKind) -> Mutation:
    return first(lambda plan, number, step: [] if _is(step, kind) else None)


def _drop_gradient_sum(program: TensorProgram, plan: Plan) -> Plan | None:
    for number, step in enumerate(plan.steps):
        if _is(step, CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER) and _is_gradient(program, plan, step):
            return with_steps(plan, number, [])
    return None


def _turn(before: CollectiveKind, after: CollectiveKind) -> Mutation:
    return first(
        lambda plan, number, step: replace(step, kind=after) if isinstance(step, Collective) and step.kind is before else None
    )


def _other_axis(plan: Plan, number: int, step: Step) -> Step | None:
    if not isinstance(step, Collective):
        return None
    others = [axis.name for axis in plan.mesh_of(step.source).axes if axis.name != step.axis]
    return replace(step, axis=others[-1]) if others else None


def _constant(ops: tuple[str, ...], part: int | None = None) -> Mutation:
    """Changes a number among the arguments of an operation, for all parts or for one."""

    def mutate(program: TensorProgram, plan: Plan) -> Plan | None:
        for node in program.nodes:
            if node.op.split(".")[1] not in ops:
                continue
            steps = [
                _scaled(s) if isinstance(s, Apply) and s.node == node.name and part in (None, s.part) else s for s in plan.steps
            ]
            if steps != list(plan.steps):
                return replace(plan, steps=tuple(steps))
        return None

    return mutate


def _scaled(step: Apply) -> Apply:
    for index, argument in enumerate(step.arguments):
        if isinstance(argument, int | float) and not isinstance(argument, bool) and index:
            changed = argument * 2 + 1 if isinstance(argument, float) else argument - 1
            return replace(step, arguments=(*step.arguments[:index], changed, *step.arguments[index + 1 :]))
    return step


def _stale(plan: Plan, number: int, step: Step) -> Step | None:
    """Reads another tensor of the same shape and layout."""
    for tensor in step.inputs if isinstance(step, Apply) else ():
        if (other := like(plan, number, tensor)) is not None:
            return reading(step, {tensor: other})
    return None


def _wrong_addend(plan: Plan, number: int, step: Step) -> Step | None:
    """A sum of gradients takes a wrong one."""
    return _stale(plan, number, step) if isinstance(step, Apply) and step.op == "aten.add.Tensor" else None


def _swapped(plan: Plan, number: int, step: Step) -> Step | None:
    if isinstance(step, Apply) and step.op.split(".")[1] in ("sub", "mm", "div") and len(set(step.inputs)) == 2:
        first, other = step.inputs
        if plan.values[plan.tensors[first].value].shape == plan.values[plan.tensors[other].value].shape:
            return reading(step, {first: other, other: first})
    return None


def _exchanged_results(program: TensorProgram, plan: Plan) -> Plan | None:
    """Two tensors of one shape and layout take each other's place, from where they are made."""
    for number, step in enumerate(plan.steps):
        for tensor in step.outputs if isinstance(step, Apply) else ():
            if tensor and (other := like(plan, number, tensor, with_sources=False)) is not None:
                steps = tuple(_making(each, {tensor: other, other: tensor}) for each in plan.steps)
                return replace(plan, steps=steps)
    return None


def _making(step: Step, names: Mapping[str, str]) -> Step:
    if isinstance(step, Apply):
        return replace(step, outputs=tuple(names.get(output, output) for output in step.outputs))
    return step


def _other_operation(plan: Plan, number: int, step: Step) -> Step | None:
    return replace(step, op="aten.sub.Tensor") if isinstance(step, Apply) and step.op == "aten.add.Tensor" else None


def _wrong_peer(plan: Plan, number: int, step: Step) -> Step | None:
    """Receives from a mesh that does not hold the tensor yet, or sends to another."""
    if not isinstance(step, Transfer):
        return None
    for name, placed in plan.tensors.items():
        is_same_value = placed.value == plan.tensors[step.source].value
        if is_same_value and placed.mesh not in (plan.tensors[step.source].mesh, plan.tensors[step.target].mesh):
            return replace(step, source=name)
    return replace(step, source=step.target, target=step.source)


def _wrong_mesh(plan: Plan, number: int, step: Step) -> Step | None:
    others = [name for name in plan.meshes if isinstance(step, Apply) and name != step.mesh]
    return replace(step, mesh=others[0]) if others and isinstance(step, Apply) else None


def _wrong_part(plan: Plan, number: int, step: Step) -> Step | None:
    return replace(step, part=step.part + 1) if isinstance(step, Apply) and step.part == 0 else None


def _sum_too_early(program: TensorProgram, plan: Plan) -> Plan | None:
    """The sum over microbatches comes before the last of them."""
    for number, step in enumerate(plan.steps):
        if isinstance(step, Collective) and any(a.name == step.axis and a.is_time for a in plan.mesh_of(step.source).axes):
            makers = [n for n, s in enumerate(plan.steps[:number]) if step.source in s.outputs]
            if len(makers) > 1:
                rest = [s for n, s in enumerate(plan.steps) if n != number]
                return replace(plan, steps=(*rest[: makers[-1]], step, *rest[makers[-1] :]))
    return None


def _twice(plan: Plan, number: int, step: Step) -> list[Step] | None:
    return [step, step] if _is(step, CollectiveKind.ALL_REDUCE) else None


def _sum_of_sum(plan: Plan, number: int, step: Step) -> list[Step] | None:
    if isinstance(step, Collective) and step.kind is CollectiveKind.ALL_REDUCE:
        return [step, replace(step, source=step.target)]
    return None


def _last(keep: Callable[[Step], bool]) -> Mutation:
    def mutate(program: TensorProgram, plan: Plan) -> Plan | None:
        numbers = [number for number, step in enumerate(plan.steps) if keep(step)]
        return with_steps(plan, numbers[-1], []) if numbers else None

    return mutate


def _only_first_part(program: TensorProgram, plan: Plan) -> Plan | None:
    """One microbatch is left out."""
    steps = tuple(step for step in plan.steps if step.part != 1)
    return replace(plan, steps=steps) if len(steps) < len(plan.steps) else None


def _reversed(program: TensorProgram, plan: Plan) -> Plan | None:
    for number in range(1, len(plan.steps)):
        before, after = plan.steps[number - 1], plan.steps[number]
        if before.part == after.part and set(after.inputs) & {output for output in before.outputs if output}:
            steps = list(plan.steps)
            steps[number - 1], steps[number] = steps[number], steps[number - 1]
            return replace(plan, steps=tuple(steps))
    return None


def _one_slot(program: TensorProgram, plan: Plan) -> Plan | None:
    """All messages between two ranks come into one place, whether or not the one before is still needed."""
    steps = tuple(
        replace(step, edges=tuple(replace(edge, slot=0) for edge in step.edges)) if isinstance(step, Transfer) else step
        for step in plan.steps
    )
    return replace(plan, steps=steps) if steps != plan.steps else None


def _other_edge(plan: Plan, number: int, step: Step) -> Step | None:
    """An edge leads back to where it comes from."""
    if not isinstance(step, Transfer) or not step.edges:
        return None
    return replace(step, edges=(replace(step.edges[0], target=step.edges[0].source), *step.edges[1:]))


def _is(step: Step, *kinds: CollectiveKind) -> bool:
    return isinstance(step, Collective) and step.kind in kinds


def _is_gradient(program: TensorProgram, plan: Plan, step: Step) -> bool:
    return any(plan.tensors[tensor].value in program.gradients.values() for tensor in step.outputs if tensor)


MUTATIONS: Mapping[str, Mutation] = {
    "1 missing all-reduce, data still flow": _drop_and_read_the_source(CollectiveKind.ALL_REDUCE),
    "2 missing all-reduce, nothing flows": _drop(CollectiveKind.ALL_REDUCE),
    "3 all-reduce becomes all-gather": _turn(CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER),
    "4 all-gather becomes all-reduce": _turn(CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE),
    "6 wrong peer": first(_wrong_peer),
    "7 constant of all ranks": _constant(("_softmax", "_log_softmax", "slice", "sum", "gather", "eq", "ne")),
    "8 constant of a row's dimension": _constant(("_log_softmax",)),
    "9 constant in one microbatch": _constant(("_softmax", "_log_softmax"), part=0),
    "10 sum of gradients takes a wrong input": first(_wrong_addend),
    "11 two outputs exchanged": _exchanged_results,
    "13 sum added up again: scaled by the ranks": first(_sum_of_sum),
    "14 gradients added up before the last microbatch": _sum_too_early,
    "missing all-gather": _drop(CollectiveKind.ALL_GATHER),
    "missing all-gather, data still flow": _drop_and_read_the_source(CollectiveKind.ALL_GATHER),
    "missing slice": _drop(CollectiveKind.SLICE),
    "missing gradient reduction": _drop_gradient_sum,
    "missing transfer": _last(lambda step: isinstance(step, Transfer)),
    "missing operation": _last(lambda step: isinstance(step, Apply)),
    "collective along another axis": first(_other_axis),
    "reduce-scatter becomes all-to-all": _turn(CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL),
    "slice becomes mask": _turn(CollectiveKind.SLICE, CollectiveKind.MASK),
    "collective twice": first(_twice),
    "stale piece": first(_stale),
    "inputs swapped": first(_swapped),
    "other operation": first(_other_operation),
    "wrong mesh": first(_wrong_mesh),
    "wrong microbatch": first(_wrong_part),
    "microbatch left out": _only_first_part,
    "two steps in the other order": _reversed,
    "slot filled while it is needed": _one_slot,
    "edge to another rank": first(_other_edge),
}
"""By name; those with numbers are the bugs of TrainVerify's table (SOSP'25)."""


def _of_overlap(change: Callable[[Plan, Overlap], Overlap]) -> Mutation:
    """Changes the first kernel that overlaps."""

    def mutate(program: TensorProgram, plan: Plan) -> Plan | None:
        for index, kernel in enumerate(plan.kernels):
            if kernel.overlap is not None:
                wrong = replace(kernel, overlap=change(plan, kernel.overlap))
                return replace(plan, kernels=(*plan.kernels[:index], wrong, *plan.kernels[index + 1 :]))
        return None

    return mutate


def _backwards(plan: Plan, overlap: Overlap) -> Overlap:
    return replace(overlap, order=overlap.order[::-1])


def _uncut(plan: Plan, overlap: Overlap) -> Overlap:
    """What slices need a part of is read whole: the first that is no term of the sum."""
    left_out = next(name for name in overlap.cuts if PARTIAL not in plan.tensors[name].layout)
    return replace(overlap, cuts={name: dim for name, dim in overlap.cuts.items() if name != left_out})


KERNEL_MUTATIONS: Mapping[str, Mutation] = {
    "kernel makes its slices in another order than the ring sends them": _of_overlap(_backwards),
    "kernel reads a factor whole of which each slice needs a part": _of_overlap(_uncut),
}
"""By name."""
