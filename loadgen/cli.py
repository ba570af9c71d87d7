"""``dyorc load`` and ``python -m loadgen``: measures servers of tensor programs."""

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from dyorc.system.finite_option import finite
from dyorc.system.terminal import help_markup
from loadgen import options
from loadgen.command_options import group_options
from loadgen.compare_cli import compare_command
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.report_cli import report_command
from loadgen.results import RunResult
from loadgen.sweep_cli import sweep_command
from loadgen.targets.base import TargetSpec
from loadgen.trace_cli import trace_command

app = typer.Typer(
    help="Sends requests at planned times, checks the answers, and reports latency, rate and errors.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=help_markup(),
    add_completion=False,
)


@app.command("run")
@group_options
def run_command(
    url: options.Url,
    model: options.Model,
    how: options.TargetOptions,
    sent: options.SentOptions,
    pace: options.PaceOptions,
    load: options.LoadOptions,
    output: options.OutputOptions,
    label: options.Label = "",
) -> None:
    """Measures one target under one load. Goodput is the share of requests that are answered correctly, and within --slo-ms if
    that is given."""
    with options.errors_as_one_line():
        planned, target = load.load(pace, sent.seed), how.spec(url, model)
        result = _measure(label or model, target, sent.requests(target), planned, is_shown=not output.as_json)
        written = msgspec.json.encode(result)
        output.write(written)
    _print_result(result, written if output.as_json else None)


def _measure(label: str, target: TargetSpec, pool: Pool, load: Load, *, is_shown: bool) -> RunResult:
    from loadgen.display import Display
    from loadgen.run import run
    from loadgen.server_figures import watch_of

    server = watch_of(target)
    if not is_shown:
        return run(label, target, pool, load, server=server)
    with Display(label, load) as display:
        return run(label, target, pool, load, show=display.show, server=server)


def _print_result(result: RunResult, written: bytes | None) -> None:
    from loadgen.tables import run_table

    if written is not None:
        print(written.decode())
        return
    print(run_table([result]))


@app.command("limit")
def limit_command(
    duration: Annotated[float, typer.Option("--duration", callback=finite, min=0.5, help="Seconds for each rate.")] = 3.0,
) -> None:
    """Finds the highest rate at which one worker can send on this machine, over HTTP and gRPC. The last line is JSON."""
    from loadgen.limit import find_limits

    with options.errors_as_one_line():
        limits = find_limits(duration, lambda line: print(line, flush=True))
    print(json.dumps(limits))


app.command("sweep")(group_options(sweep_command))
app.command("compare")(group_options(compare_command))
app.command("report")(report_command)
app.command("trace")(trace_command)


def main(arguments: Sequence[str] | None = None, *, program: str | None = None) -> None:
    """Runs the command, with the process's arguments and name unless others are given."""
    try:
        app(arguments, prog_name=program)
    except KeyboardInterrupt:
        sys.exit(130)
