"""``dyorc cluster``: measures this machine as a cluster for `dyorc plan`, and checks the files that describe clusters."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from dyorc.cli.stacked_table import StackedTable
from dyorc.core.counts import count

if TYPE_CHECKING:
    from dyorc.planner.cluster import Link

app = typer.Typer(no_args_is_help=True, help="Measures and checks the clusters that `dyorc plan` plans for.")


@app.command()
def measure(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the file is written; printed if left out.")] = None,
    ranks: Annotated[int, typer.Option(min=1, help="How many processes compute at the same time, as a plan's ranks do.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller measurements: seconds, but rough.")] = False,
) -> None:
    """Measures what ranks on this machine need to compute and to communicate, and writes it as a cluster file."""
    from dyorc.planner.cluster import cluster_to_toml
    from dyorc.planner.measure import QUICK, Effort, measure_cluster
    from dyorc.planner.whole_file import check_writable, write_whole

    if output is not None:
        check_writable(output)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as bar:
        task = bar.add_task(f"starting {ranks} ranks", total=None)

        def show_step(step: str, num_done: int, num_all: int) -> None:
            bar.update(task, description=step, completed=num_done, total=num_all)
            if not errors.is_terminal:
                errors.print(f"{num_done + 1}/{num_all} {step}", markup=False)

        text = cluster_to_toml(measure_cluster(ranks, effort=QUICK if quick else Effort(), progress=show_step))
    if output is None:
        print(text, end="")
        return
    write_whole(output, text)
    Console(soft_wrap=True, highlight=False).print(f"{output}: measured with {ranks} ranks")


@app.command()
def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A cluster file.")]) -> None:
    """Reads a cluster file and prints what it says; names the line of what is missing or wrong."""
    from dyorc.planner.cluster import load_cluster

    cluster, console = load_cluster(file), Console(soft_wrap=True, highlight=False)
    console.print(f"{cluster.name}: {count(cluster.num_ranks, 'rank')}, digest {cluster.digest[:12]}")
    numbers = [Column(name, justify="right") for name in ("Tflop/s", "GB of memory", "GB/s to memory")]
    devices = StackedTable("rank", "device", "machine", *numbers)
    for rank, device in enumerate(cluster.devices):
        figures = [device.flops_per_s / 1e12, device.memory_bytes / 1e9, device.memory_bytes_per_s / 1e9]
        devices.add_row(str(rank), device.name, device.machine, *(f"{figure:.4g}" for figure in figures))
    links = StackedTable("link", Column("GB/s", justify="right"), Column("us", justify="right"))
    for link in cluster.links:
        links.add_row(
            f"inside {link.source}" if link.source == link.target else f"{link.source} - {link.target}", *_figures(link)
        )
    if cluster.between_all:
        links.add_row("between all others", *_figures(cluster.between_all))
    console.print(devices, "", links)
    for collective in cluster.collectives:
        console.print(f"measured: {collective.kind}, {collective.algorithm}")


def _figures(link: "Link") -> tuple[str, str]:
    return f"{link.bytes_per_s / 1e9:.4g}", f"{link.latency_s * 1e6:.4g}"
