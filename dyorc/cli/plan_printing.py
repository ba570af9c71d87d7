"""What ``dyorc plan`` prints: plans, ranks, comparisons and proofs, for people and as JSON."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column

from dyorc.cli.stacked_table import StackedTable
from dyorc.core.counts import count
from dyorc.errors import PlanError

if TYPE_CHECKING:
    from dyorc.planner.cluster import Cluster
    from dyorc.planner.plan import ModuleCheck, Plan
    from dyorc.planner.program import TensorProgram
    from dyorc.planner.simulate import Simulation

_console = Console(soft_wrap=True, highlight=False)
_MAX_REPEATED = 12
"""Rows; what is left is added up in one more."""


def print_json(plan: "Plan", simulation: "Simulation | None", more: Mapping[str, Any] | None = None) -> None:
    """Prints what a plan is, and how it was simulated, as JSON."""
    import json

    from dyorc.planner.plan.show import values_of

    print(
        json.dumps(
            values_of(plan) | dict(more or {}) | ({} if simulation is None else {"simulation": simulation.as_values()}), indent=2
        )
    )


def print_plan(plan: "Plan", simulation: "Simulation | None") -> None:
    """Prints where a plan comes from, its meshes, what it communicates, and its ranks."""
    from dyorc.planner.plan.show import summary_of

    origin = plan.provenance
    cost = "" if origin.cost_s is None else f", {milliseconds(origin.cost_s)} a step"
    _console.print(f"plan by {origin.planner} for {plan.target or 'a program'} ({plan.program[:12]}){cost}")
    for name, value in sorted(origin.notes.items()):
        _console.print(f"  {name}: {value}")
    for kernel in plan.kernels:
        overlap = "" if kernel.overlap is None else ", what it reduces is made meanwhile"
        _console.print(f"  kernel: steps {kernel.first} to {kernel.end - 1} in {count(kernel.num_chunks, 'chunk')}{overlap}")
    _console.print(f"  module: {_comparison(plan.module_check)}")
    if (answers := plan.inference) is not None:
        proof = "proved" if answers.is_proved else "not proved"
        _console.print(f"  answers: {answers.max_samples} samples at once, or fewer; {proof}")
    _print_meshes(plan)
    steps = StackedTable(
        "communication", Column("steps", justify="right"), Column("bytes of the largest pieces", justify="right")
    )
    for communication in summary_of(plan).communications:
        steps.add_row(communication.kind, f"{communication.num_steps:,}", f"{communication.num_bytes:,}")
    _console.print(steps, "")
    print_ranks(plan, simulation)


def print_comparison(program: "TensorProgram", check: "ModuleCheck | None") -> None:
    """Prints how a program was compared with its module."""
    _console.print(f"module and captured program of {program.name}: {_comparison(check)}", markup=False)


def _comparison(check: "ModuleCheck | None") -> str:
    return "not compared" if check is None else f"compared, {check}"


def print_proof(program: "TensorProgram", plan: "Plan") -> None:
    """Proves a plan, and prints how.

    Raises:
        PlanError: It is not proved.
    """
    from dyorc.planner.verify import verify_inference

    sizes = ("",) if plan.inference is None else (f", {plan.inference.max_samples} samples", ", one sample")
    for report, size in zip(verify_inference(program, plan), sizes, strict=False):
        if report.findings:
            raise PlanError(f"the plan is not proved to compute what the captured program computes. {report}")
        _console.print(f"captured program and plan{size}: {report}", markup=False)


def _print_meshes(plan: "Plan") -> None:
    table = StackedTable("mesh", "axes", "ranks", Column("tensors", justify="right"))
    for mesh in plan.meshes.values():
        axes = " x ".join(f"{axis.name} {axis.size}{' (time)' if axis.is_time else ''}" for axis in mesh.axes)
        ranks = f"{mesh.ranks[0]} to {mesh.ranks[-1]}" if len(mesh.ranks) > 8 else ", ".join(map(str, mesh.ranks))
        table.add_row(mesh.name, axes, ranks, f"{sum(placed.mesh == mesh.name for placed in plan.tensors.values()):,}")
    _console.print(table, "")


def print_ranks(plan: "Plan", simulation: "Simulation | None") -> None:
    """Prints what each rank computes and holds; equal ones in one row."""
    from dyorc.cli.rank_table import rank_table

    _console.print(rank_table(plan, simulation))


def print_repeated(plan: "Plan", cluster: "Cluster | None") -> None:
    """Says what every rank computes whole, although there are several."""
    from dyorc.planner.simulate.repeated import fold_operations, repeated_operations

    operations = repeated_operations(plan, cluster)
    if not operations:
        return
    columns = ["steps", "of the flops", "of the bytes", *(["ms"] if cluster else [])]
    table = StackedTable("whole on every rank", *(Column(name, justify="right") for name in columns))
    for operation in fold_operations(operations, _MAX_REPEATED):
        row = [f"{operation.num_steps:,}", f"{operation.flops_share:.2%}", f"{operation.bytes_share:.2%}"]
        table.add_row(operation.op, *row, *([] if operation.seconds is None else [f"{operation.seconds * 1e3:.4g}"]))
    _console.print("", table)


def repeated_values(plan: "Plan", cluster: "Cluster | None") -> dict[str, Any]:
    """The same for JSON."""
    from dataclasses import asdict

    from dyorc.planner.simulate.repeated import repeated_operations

    return {"whole_on_every_rank": [asdict(operation) for operation in repeated_operations(plan, cluster)]}


def milliseconds(seconds: float) -> str:
    """Returns seconds as people read them."""
    return f"{seconds * 1e3:.4g} ms"
