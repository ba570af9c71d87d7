"""``dyorc plan``: finds, shows, proves, simulates and runs plans of models that train or answer. What it needs is imported when a
command runs: torch takes seconds.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column
from typer.core import TyperGroup

from dyorc.cli.plan_merge import DEFAULT_STEPS, merge, run_merged, show_merged
from dyorc.cli.plan_printing import (
    milliseconds,
    print_comparison,
    print_json,
    print_plan,
    print_proof,
    print_ranks,
    print_repeated,
    repeated_values,
)
from dyorc.cli.server_options import AsJson
from dyorc.cli.stacked_table import StackedTable
from dyorc.core.counts import count
from dyorc.errors import PlanError, PlanRunError
from dyorc.system.finite_option import finite
from dyorc.system.output_option import writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dyorc.planner.cluster import Cluster
    from dyorc.planner.plan import Plan
    from dyorc.planner.program import TensorProgram
    from dyorc.planner.simulate import Simulation


class _WithDefault(TyperGroup):
    """Takes `dyorc plan MODULE:MAKE ...` for `dyorc plan make MODULE:MAKE ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_command = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if is_command else ["make", *args])


app = typer.Typer(cls=_WithDefault, no_args_is_help=True, help="Plans how a model is split over a cluster.")
app.command("merge")(merge)
_CHANNELS = ("auto", "gloo", "static", "dynamic", "grpc")
_console = Console(soft_wrap=True, highlight=False)

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A file that `dyorc plan` wrote.")]
ClusterFile = Annotated[Path, typer.Option("--cluster", help="The cluster: a TOML file; `dyorc cluster check` checks it.")]
AnyCluster = Annotated[Path | None, typer.Option("--cluster", help="A cluster file: says how long a step takes on it.")]
Target = Annotated[
    str | None, typer.Option("--model", metavar="MODULE:MAKE[+OPTIMIZER]", help="The model, if it is not where the plan says.")
]


@app.command("make")
def make(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:MAKE[+OPTIMIZER]",
            help="A function without arguments that returns a module and example inputs. +adam, +sgd, +momentum or +adama: "
            "the optimizer's step is planned, too; +adama4: over four microbatches, whose gradients +adam4 adds up.",
        ),
    ],
    cluster: ClusterFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the plan is written.")],
    planner: Annotated[str, typer.Option(help="A planner's name; auto: the best of all, by the simulator.")] = "auto",
    channels: Annotated[
        str,
        typer.Option(help="How messages go between ranks: auto, the cheapest by the cluster; or gloo, static, dynamic, grpc."),
    ] = "gloo",
    inference: Annotated[
        bool,
        typer.Option("--inference", help="The model answers, for `dyorc serve --plan`; its inputs are the largest batch."),
    ] = False,
    compare: Annotated[
        bool,
        typer.Option(
            help="Compare the model with its captured program first, in float64 on one device; the plan records if not."
        ),
    ] = True,
    deadline: Annotated[
        float | None,
        typer.Option(
            callback=finite, min=0, metavar="SECONDS", help="End the search after this long, with the best plan so far."
        ),
    ] = None,
) -> None:
    """Compares a model with its captured program, finds a plan of that, proves it, and writes it.

    Ctrl-C ends the search with the best plan so far. `make` may be left out.
    """
    import gc
    from dataclasses import replace

    from dyorc.cli.plan_progress import SearchProgress
    from dyorc.planner.cluster import load_cluster
    from dyorc.planner.plan.plan_file import write_plan
    from dyorc.planner.planned_module import capture_target
    from dyorc.planner.planners.auto import plans
    from dyorc.planner.whole_file import check_writable

    check_writable(output := output.absolute())  # the module's code may go to another folder
    if deadline is not None and not 0 < deadline < math.inf:
        raise typer.BadParameter(f"is {deadline}, expected a positive number of seconds", param_hint="--deadline")
    if channels not in _CHANNELS:
        raise typer.BadParameter(f"unknown channel {channels!r}; choose one of {', '.join(_CHANNELS)}", param_hint="--channels")
    where = load_cluster(cluster)
    model = capture_target(target, is_inference=inference)
    program, check = model.program, model.compare() if compare else None
    print_comparison(program, check)
    gc.freeze()  # torch's objects stay: looking through all of them again and again takes a tenth of a search
    with SearchProgress() as progress:
        candidates = plans(program, where, planner, report=progress.take, deadline_s=deadline)
    proved = _first_proved(
        program, (_with_channels(replace(each, target=target, module_check=check), where, channels) for each in candidates)
    )
    if proved.inference is not None:
        proved = replace(proved, inference=replace(proved.inference, is_proved=True))
    write_plan(proved, output)
    origin = proved.provenance
    early = "" if origin.ended == "finished" else f", search ended by {origin.ended}"
    _console.print(
        f"{output}: by {origin.planner}{early}, {milliseconds(origin.cost_s or 0.0)} a step on {where.name} "
        f"({count(where.num_ranks, 'rank')}), {count(len(proved.steps), 'step')}"
    )


@app.command()
def show(
    plan: PlanFile,
    cluster: AnyCluster = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            callback=writable, help="Draw devices over time, memory and layouts into this .svg or .png; needs --cluster."
        ),
    ] = None,
    model: Target = None,
    as_json: AsJson = False,
) -> None:
    """Prints a plan: meshes, communication, and what each rank computes and holds; on a cluster, also how long that takes.

    Of merged plans: the phases of each job, and whose turn it is when.
    """
    from dyorc.planner.plan.plan_file import read_plan
    from dyorc.planner.planned_module import program_of_plan
    from dyorc.planner.planners.crossover.merged_plans_file import is_merged

    if is_merged(plan):
        _refuse(plan, {"--cluster": cluster, "--picture": picture, "--model": model, "--json": as_json or None})
        show_merged(plan)
        return

    loaded = read_plan(plan)
    program = None if cluster is None else program_of_plan(loaded, model)
    simulation, where = (None, None) if cluster is None or program is None else _simulated(loaded, cluster, program)
    if picture is not None and simulation is None:
        raise PlanError("--picture shows a simulation: name the cluster with --cluster")
    if as_json:
        print_json(loaded, simulation, repeated_values(loaded, where))
    else:
        print_plan(loaded, simulation)
        print_repeated(loaded, where)
    if picture is not None and simulation is not None and program is not None:
        from dyorc.planner.simulate.plan_picture import draw_picture

        draw_picture(simulation, program, picture)
        _note(f"drawn into {picture}", as_json)


def _note(text: str, as_json: bool) -> None:
    """Prints what else was done; on standard error if JSON is printed."""
    (Console(stderr=True, soft_wrap=True, highlight=False) if as_json else _console).print(text)


@app.command()
def verify(
    plan: PlanFile,
    model: Target = None,
    compare: Annotated[bool, typer.Option(help="Compare the model with its captured program, too.")] = True,
) -> None:
    """Compares the model with its captured program, and proves that the plan computes what that does; ends with 1 if not.

    The comparison is of numbers, on some weights and inputs. The proof is for all inputs. It rests on what the operations of the
    program mean, and on numbers that are not rounded: `run` compares what ranks really compute.
    """
    from dyorc.planner.plan.plan_file import read_plan
    from dyorc.planner.planned_module import captured_of_plan

    plan_of_model = read_plan(plan)
    captured_model = captured_of_plan(plan_of_model, model)
    print_comparison(captured_model.program, captured_model.compare() if compare else None)
    print_proof(captured_model.program, plan_of_model)
    _console.print("not proved: that torch computes what the proof takes operations to mean, and what rounding does")


@app.command()
def simulate(
    plan: PlanFile,
    cluster: ClusterFile,
    trace: Annotated[
        Path | None, typer.Option(callback=writable, help="Write a Chrome trace here, which Perfetto shows.")
    ] = None,
    overlap: Annotated[bool, typer.Option(help="Whether ranks compute while they communicate.")] = True,
    model: Target = None,
    as_json: AsJson = False,
) -> None:
    """Simulates a plan: how long a step takes, what each rank does, and how much memory it needs; refuses what does not fit."""
    import json

    from dyorc.planner.plan.plan_file import read_plan
    from dyorc.planner.planned_module import program_of_plan
    from dyorc.planner.simulate import check_memory, to_chrome_trace

    loaded = read_plan(plan)
    simulation, where = _simulated(loaded, cluster, program_of_plan(loaded, model), overlap=overlap)
    if as_json:
        print_json(loaded, simulation)
    else:
        _console.print(f"{milliseconds(simulation.total_s)} a step on {where.name}")
        print_ranks(loaded, simulation)
    if trace is not None:
        trace.write_text(json.dumps(to_chrome_trace(simulation, where)))
        _note(f"trace in {trace}", as_json)
    check_memory(simulation, where)


@app.command()
def network(
    plan: PlanFile,
    cluster: ClusterFile,
    form: Annotated[str, typer.Option("--format", help="ovs: Open vSwitch and routes; tc: Linux' own queues and routes.")] = "tc",
    machine: Annotated[str | None, typer.Option(help="Only this machine's.")] = None,
    bridge: Annotated[str, typer.Option(help="The bridge of Open vSwitch whose ports the interfaces are.")] = "br0",
) -> None:
    """Prints the commands that make machines keep a plan's limits of what they send to each other. Nothing is run."""
    from dyorc.planner.cluster import load_cluster
    from dyorc.planner.network import rules_of, to_ovs, to_tc
    from dyorc.planner.plan.plan_file import read_plan

    if form not in ("ovs", "tc"):
        raise typer.BadParameter(f"unknown format {form!r}; choose ovs or tc", param_hint="--format")
    loaded = read_plan(plan)
    if loaded.network is None:
        raise PlanError(f"the plan by {loaded.provenance.planner} limits no machine's bandwidth; only plans by joint may")
    rules = rules_of(loaded.network, load_cluster(cluster))
    if machine is not None and machine not in rules:
        raise PlanError(f"the plan does not limit what {machine} sends; it limits {', '.join(rules)}")
    for name in rules if machine is None else (machine,):
        typer.echo(f"# on {name}")
        typer.echo(to_ovs(rules[name], bridge) if form == "ovs" else to_tc(rules[name]))


@app.command()
def fuse(
    plan: PlanFile,
    cluster: ClusterFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the new plan is written.")],
    measure: Annotated[
        bool, typer.Option("--measure", help="Run the best on processes of this machine, too, and take the quickest.")
    ] = False,
    model: Target = None,
) -> None:
    """Rewrites all-reduces and what is computed before and after them (CoCoNeT), where that is quicker, and proves the plan.

    With an optimizer in the program (MODULE:MAKE+adam) it becomes a part of the reduction of gradients, and its states lie in
    slices. Products of matrices are computed while their sum goes round the ranks.
    """
    from dataclasses import replace

    from dyorc.planner.cluster import load_cluster
    from dyorc.planner.passes.coconet import best_of, candidates_of, measure_candidates
    from dyorc.planner.plan.plan_file import read_plan, write_plan
    from dyorc.planner.planned_module import program_of_plan
    from dyorc.planner.whole_file import check_writable

    check_writable(output := output.absolute())  # the module's code may go to another folder
    loaded, where = read_plan(plan), load_cluster(cluster)
    if loaded.inference is not None:
        raise PlanError(f"{plan} is of a model that answers; what is rewritten is a step of training")
    program = program_of_plan(loaded, model)
    candidates = measure_candidates(
        candidates_of(loaded, program, where), _measure(program, model or loaded.target) if measure else None
    )
    table = StackedTable("schedule", Column("simulated", justify="right"), Column("measured", justify="right"))
    for candidate in candidates:
        table.add_row(
            candidate.name,
            milliseconds(candidate.simulated_s),
            "" if candidate.measured_s is None else milliseconds(candidate.measured_s),
        )
    _console.print(table, "")
    best = replace(best_of(loaded, candidates), cluster=where.digest)
    print_proof(program, best)
    write_plan(best, output)
    step = milliseconds(candidates[0].simulated_s)
    _console.print(f"{output}: {candidates[0].name}, {step} a step on {where.name}, {count(len(best.kernels), 'kernel')}")


def _measure(program: "TensorProgram", target: str) -> "Callable[[Plan], float]":
    from dyorc.planner.passes.coconet.on_ranks import seconds_on_ranks
    from dyorc.planner.planned_module import module_of
    from dyorc.planner.program import sources_of

    module, example = module_of(target)
    return seconds_on_ranks(program, sources_of(program, module, example.tensors))


@app.command("run")
def run_plan(
    plan: PlanFile,
    cluster: AnyCluster = None,
    model: Target = None,
    unverified: Annotated[bool, typer.Option(help="Run it without proving it first.")] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help=f"Of merged plans: how many steps each job trains; {DEFAULT_STEPS} by default.")
    ] = None,
) -> None:
    """Runs a plan once on processes of this machine, and judges what comes out: exit status 1 if it is not the model's.

    The loss, each gradient, each buffer and what an optimizer changes, or the answers, are compared with what PyTorch
    computes on one device. Of each tensor, no element may differ by more than a share of its largest one: 1e-8 in float64,
    1e-4 in float32, 1e-2 in float16, 5e-2 in bfloat16; the coarsest type counts that it was made of.

    With a cluster, a plan that needs more memory than its devices have is refused before anything starts.

    Merged plans train side by side, in turns. If one job fails, the others go on.
    """
    from dyorc.planner.planned_module import captured_of_plan
    from dyorc.planner.planners.crossover.merged_plans_file import is_merged

    if is_merged(plan):
        _refuse(plan, {"--cluster": cluster, "--model": model})
        run_merged(plan, steps or DEFAULT_STEPS, is_unverified=unverified)
        return
    if steps is not None:
        raise PlanError(f"--steps is for merged plans, and {plan} holds one plan, which runs once")
    from dyorc.planner.plan.plan_file import read_plan
    from dyorc.planner.program import sources_of
    from dyorc.planner.reference import LOSS, example_with_elements, judge_run, label_results, with_elements
    from dyorc.planner.runtime import run
    from dyorc.planner.simulate import check_memory

    loaded = read_plan(plan)
    captured_model = captured_of_plan(loaded, model)
    program = captured_model.program
    module, example = with_elements(captured_model.module), example_with_elements(captured_model.example)
    if cluster is not None:
        check_memory(*_simulated(loaded, cluster, program))
    sources = sources_of(program, module, example.tensors)
    ran = run(loaded, sources, program=program, allow_unverified=unverified)
    judgement = judge_run(program, ran.results, module, example, sources, captured_model.optimizer)
    loss = "" if program.outputs else f"loss {float(label_results(program, ran.results)[LOSS]):.9g}; "
    if not judgement.is_equal:
        raise PlanRunError(f"{count(loaded.num_ranks, 'rank')} computed something else than one device: {loss}{judgement}")
    _console.print(f"{count(loaded.num_ranks, 'rank')} computed what one device does: {loss}{judgement}")


@app.command()
def export(
    plan: PlanFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the table is written, as CSV.")],
    model: Target = None,
) -> None:
    """Writes a pipeline's order as a table of actions for torch.distributed.pipelining, one line for each rank."""
    from dyorc.planner.plan.plan_file import read_plan
    from dyorc.planner.planned_module import program_of_plan
    from dyorc.planner.planners.tessel.export import pipelining_table
    from dyorc.planner.whole_file import check_writable, write_whole

    check_writable(output := output.absolute())  # the module's code may go to another folder
    loaded = read_plan(plan)
    table = pipelining_table(loaded, program_of_plan(loaded, model))
    write_whole(output, table)
    _console.print(f"{output}: {len(table.splitlines())} ranks")


def _refuse(plan: Path, options: Mapping[str, object]) -> None:
    """Options that are for a single plan."""
    if names := [name for name, value in options.items() if value is not None]:
        raise PlanError(f"{names[0]} is for a single plan, and {plan} holds merged ones")


def _with_channels(plan: "Plan", cluster: "Cluster", channels: str) -> "Plan":
    from dyorc.planner.passes.channels import with_channels
    from dyorc.planner.plan import ChannelKind

    if channels == ChannelKind.GLOO:
        return plan
    return with_channels(plan, cluster, tuple(ChannelKind) if channels == "auto" else (ChannelKind(channels),))


def _simulated(plan: "Plan", cluster: Path, program: "TensorProgram", *, overlap: bool = True) -> tuple["Simulation", "Cluster"]:
    from dyorc.planner.cluster import load_cluster
    from dyorc.planner.simulate import simulate

    where = load_cluster(cluster)
    if plan.cluster and plan.cluster != where.digest:
        Console(stderr=True).print(f"note: the plan was made for another cluster than {where.name}", style="yellow")
    return simulate(plan, program, where, overlap=overlap), where


def _first_proved(program: "TensorProgram", candidates: "Iterable[Plan]") -> "Plan":
    """Proves plans in turn, and returns the first that is proved; warns of those before it.

    Raises:
        PlanError: None is; says of each why.
    """
    errors: list[str] = []
    for plan in candidates:
        try:
            print_proof(program, plan)
        except PlanError as error:
            errors.append(f"{plan.provenance.planner}: {error}")
            Console(stderr=True, soft_wrap=True).print(f"warning: not taken, {errors[-1]}", style="yellow", markup=False)
        else:
            return plan
    raise PlanError("no plan that was found is proved, so none is written:\n" + "\n".join(f"  {error}" for error in errors))
