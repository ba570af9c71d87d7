"""Chooses among the schedules of CoCoNeT for what a plan all-reduces, and what is computed before and after that.

    AR-C             all-reduce, and every rank updates everything
    RS-C-AG          reduce-scatter, each rank updates its slice, all-gather; the optimizer's states lie in slices
    fused RS-C-AG    the same as one kernel for each gradient, in chunks
    overlapped       kernels that make what they reduce, too, while the ring runs: products before gradients' sums, and before
                     those of activations, with what is computed element by element after these

By the simulator first, and if wanted then by running the best on real ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.passes.coconet.producers import producers_of
from dyorc.planner.passes.coconet.rewriting import Rewriting
from dyorc.planner.plan import Algorithm, Apply, Collective, CollectiveKind, Plan
from dyorc.planner.program import TensorProgram, ValueKind, axes_of
from dyorc.planner.program.graph import Phase
from dyorc.planner.simulate import simulate

_CHUNKS = (1, 4, 16)
_AS_IT_WAS = "AR-C"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCandidate:
    """One schedule.

    Attributes:
        name: As above, with the number of chunks of a fused one.
        plan: The plan with it.
        simulated_s: Of one step.
        measured_s: The same on real ranks, if that was asked for.
    """

    name: str
    plan: Plan
    simulated_s: float
    measured_s: float | None = None


def candidates_of(
    plan: Plan, program: TensorProgram, cluster: Cluster, chunks: Sequence[int] = _CHUNKS
) -> list[ScheduleCandidate]:
    """Returns every schedule with its simulated time, the quickest first.

    Raises:
        PlanError: The plan is for another program, or there is nothing to change.
    """
    plan.check_program(program)
    plans = {_AS_IT_WAS: plan}
    with suppress(PlanError):  # no gradient is for an optimizer alone
        plans |= {"RS-C-AG": slice_updates(plan, program)}
        plans |= {f"fused RS-C-AG, {num} chunks": fuse_updates(plan, program, num) for num in chunks}
    with suppress(PlanError):  # no product makes what is reduced
        plans |= {f"overlapped, {num} chunks": overlap_products(plan, program, num) for num in chunks}
    if len(plans) == 1:
        raise PlanError(
            f"no gradient of {program.name} is all-reduced for the optimizer alone, and no product is all-reduced that could be "
            "computed in slices: is the optimizer in the program?"
        )
    candidates = [
        ScheduleCandidate(name=name, plan=each, simulated_s=simulate(each, program, cluster).total_s)
        for name, each in plans.items()
    ]
    return sorted(candidates, key=lambda candidate: candidate.simulated_s)


def coconet(
    plan: Plan,
    program: TensorProgram,
    cluster: Cluster,
    *,
    measure: Callable[[Plan], float] | None = None,
    max_measured: int = 2,
) -> Plan:
    """Returns the plan with the quickest schedule of what it all-reduces.

    Args:
        plan: Of the program; one that all-reduces gradients for an optimizer in the program, or products.
        program: What it computes.
        cluster: Where it runs.
        measure: Runs a plan and returns its seconds: then the best by the simulator are run and the plan as it was, and the
            quickest is taken.
        max_measured: How many of the best.

    Raises:
        PlanError: Nothing that the plan all-reduces is read by the optimizer alone, or made by a product.
    """
    return best_of(plan, measure_candidates(candidates_of(plan, program, cluster), measure, max_measured))


def measure_candidates(
    candidates: Sequence[ScheduleCandidate], measure: Callable[[Plan], float] | None = None, max_measured: int = 2
) -> Sequence[ScheduleCandidate]:
    """Returns the best schedules by the simulator and the plan as it was, the quickest on real ranks first.

    Args:
        candidates: By the simulator, the quickest first.
        measure: Runs a plan and returns its seconds; None: the simulator is believed.
        max_measured: How many are run besides the plan as it was.
    """
    if measure is None:
        return candidates
    best = [candidate for index, candidate in enumerate(candidates) if index < max_measured or candidate.name == _AS_IT_WAS]
    return sorted(
        (replace(candidate, measured_s=measure(candidate.plan)) for candidate in best),
        key=lambda candidate: candidate.measured_s or 0.0,
    )


def best_of(plan: Plan, candidates: Sequence[ScheduleCandidate]) -> Plan:
    """Returns the plan with the first of several schedules, and with that said in its notes."""
    best = candidates[0]
    notes = {**plan.provenance.notes, "coconet": best.name}
    return replace(best.plan, provenance=replace(plan.provenance, cost_s=best.simulated_s, notes=notes))


def slice_updates(plan: Plan, program: TensorProgram) -> Plan:
    """Returns the plan with RS-C-AG for every gradient that only the optimizer reads."""
    rewriting = Rewriting(plan, program)
    _slice(rewriting, plan, program)
    return rewriting.plan()


def fuse_updates(plan: Plan, program: TensorProgram, num_chunks: int) -> Plan:
    """Returns the plan with a kernel for every such gradient."""
    rewriting = Rewriting(plan, program)
    for scattered in _slice(rewriting, plan, program).values():
        rewriting.fuse(scattered, num_chunks)
    return rewriting.plan()


def overlap_products(plan: Plan, program: TensorProgram, num_chunks: int) -> Plan:
    """Returns the plan with a kernel for every such gradient, and for everything else that a product makes and ranks reduce.

    Kernels make what they reduce where slices of it can be computed by themselves.

    Raises:
        PlanError: No reduced tensor is of that kind.
    """
    rewriting, dims = Rewriting(plan, program), _dims_of_products(plan, program)
    if not dims:
        raise PlanError(f"no product of {program.name} is all-reduced that could be computed in slices")
    gradients = _reduced_for_updates(plan, program)
    kernels = _slice(rewriting, plan, program, dims) if gradients else {}
    for reduced, dim in dims.items():
        if reduced not in kernels:
            kernels[reduced] = rewriting.split(reduced, dim)
            _reorder_elements(rewriting, reduced)
    for reduced, scattered in kernels.items():
        with suppress(PlanError):  # something must run in between
            rewriting.fuse(scattered, num_chunks)
            if reduced in dims:
                rewriting.overlap(scattered)
    made = rewriting.plan()
    if not any(kernel.overlap for kernel in made.kernels):
        raise PlanError(f"no product of {program.name} can be made while its sum goes round: others must run in between")
    return made


def use_rings(plan: Plan) -> Plan:
    """Returns the plan with our own rings for all collectives: then all schedules add in one order, and agree to the bit."""
    steps = tuple(replace(s, algorithm=Algorithm.RING) if isinstance(s, Collective) else s for s in plan.steps)
    return replace(plan, steps=steps)


def _slice(rewriting: Rewriting, plan: Plan, program: TensorProgram, dims: Mapping[str, int] | None = None) -> dict[str, str]:
    """Makes RS-C-AG of what only the optimizer reads, and returns the slices of each such sum."""
    reduced = list(_reduced_for_updates(plan, program))
    if not reduced:
        raise PlanError(f"no gradient of {program.name} is all-reduced for the optimizer alone: is the optimizer in the program?")
    slices: dict[str, str] = {}
    for tensor in reduced:
        slices[tensor] = rewriting.split(tensor, (dims or {}).get(tensor))
        waiting = [tensor]
        while waiting:
            gathered = waiting.pop()
            if rewriting.is_read(gathered):
                waiting += rewriting.reorder(gathered)
        value = plan.tensors[tensor].value
        if value in plan.results:
            rewriting.as_slice(value)
    for cut in rewriting.cuts:
        with suppress(PlanError):  # all of it is read elsewhere
            rewriting.narrow(cut)
    for name, after in program.updates.items():
        if program.values[name].kind is ValueKind.STATE and rewriting.is_gathered(after):
            rewriting.as_slice(name)
    return slices


def _reorder_elements(rewriting: Rewriting, gathered: str) -> None:
    """Runs the only reader of a gathered tensor on its slices, and so on, while readers compute element by element."""
    with suppress(PlanError):  # what it reads besides cannot be cut
        while rewriting.is_read_by_one(gathered):
            (gathered,) = rewriting.reorder(gathered)


def _dims_of_products(plan: Plan, program: TensorProgram) -> dict[str, int]:
    """What all-reduces of ranks make of products that can be computed in slices, and along which dimension."""
    dims: dict[str, int] = {}
    axes = axes_of(program)
    for step in plan.steps:
        if not isinstance(step, Collective) or step.kind is not CollectiveKind.ALL_REDUCE or not _is_of_ranks(plan, step):
            continue
        shape = plan.values[plan.tensors[step.source].value].shape
        for dim in sorted(range(len(shape)), key=lambda dim: -shape[dim]):
            with suppress(PlanError):
                producers_of(plan, step, dim, program, axes)
                Rewriting(plan, program).split(step.target, dim)
                dims.setdefault(step.target, dim)
    return dims


def _is_of_ranks(plan: Plan, step: Collective) -> bool:
    """Whether a collective has ranks exchange something, once in a step of training."""
    mesh = plan.mesh_of(step.source)
    return mesh.time_axis is None and not mesh.axes[mesh.axis_index(step.axis)].is_time


def _reduced_for_updates(plan: Plan, program: TensorProgram) -> Sequence[str]:
    """What all-reduces of ranks make that only the optimizer reads."""
    reduced: list[str] = []
    for step in plan.steps:
        if isinstance(step, Collective) and step.kind is CollectiveKind.ALL_REDUCE:
            readers = [other for other in plan.steps if step.target in other.inputs]
            is_update = all(
                isinstance(reader, Apply) and program.node_named[reader.node].phase is Phase.UPDATE for reader in readers
            )
            if readers and is_update and _is_of_ranks(plan, step):
                reduced.append(step.target)
    return reduced
