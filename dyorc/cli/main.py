"""Serves dynamic workflows of tensor programs, runs them without a server, or simulates them."""

import asyncio
import sys
import time
import warnings
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop
from rich.console import Console
from rich.markup import escape

from dyorc.cli.cluster import app as cluster
from dyorc.cli.cluster_keys import cluster_keys
from dyorc.cli.config import app as configuration
from dyorc.cli.deploy import deploy, rollback, undeploy
from dyorc.cli.doctor import doctor
from dyorc.cli.explain import explain
from dyorc.cli.keys import app as keys
from dyorc.cli.load import load
from dyorc.cli.plan import app as plan
from dyorc.cli.profile import profile
from dyorc.cli.replay import replay
from dyorc.cli.scale import scale
from dyorc.cli.services import gateway, orchestrator, serve_until_stopped
from dyorc.cli.serving_options import (
    AllowClientShm,
    Application,
    Config,
    GrpcPort,
    Host,
    InProcess,
    Port,
    Targets,
    plans_of,
    read_flags,
    workflows_of,
)
from dyorc.cli.simulate import app as simulation
from dyorc.cli.top import status, top
from dyorc.cli.trace import trace
from dyorc.cli.warning_display import show_warning
from dyorc.config import Settings
from dyorc.errors import ConfigurationError, DyOrcError, ModuleImportError, without_errno
from dyorc.settings.settings_text import print_in_force
from dyorc.supervisor.launch import become_supervisor, num_cells_of
from dyorc.system import malloc, standard_streams
from dyorc.system.descriptors import with_cure
from dyorc.system.output_option import writable
from dyorc.system.terminal import help_markup
from dyorc.telemetry import logs
from dyorc.version import version

if TYPE_CHECKING:
    from dyorc.server.running_server import RunningServer

_app = typer.Typer(
    no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False,
    rich_markup_mode=help_markup(),
)  # fmt: skip
_console = Console(soft_wrap=True)


def main() -> None:
    """Runs the command line. Our errors are printed as one line; for those of the user's module, the user's lines are shown."""
    standard_streams.repair()
    warnings.showwarning = show_warning
    try:
        _app()
    except (DyOrcError, OSError) as error:
        if isinstance(error, ModuleImportError):
            sys.stderr.write(error.user_traceback)
        text = with_cure(without_errno(str(error)), error)
        Console(stderr=True).print(f"[red]dyorc:[/red] {escape(text)}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"dyorc {version()}")
        raise typer.Exit


@_app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


def serve(
    targets: Targets = None,
    config: Config = None,
    host: Host = None,
    port: Port = None,
    grpc_port: GrpcPort = None,
    allow_client_shm: AllowClientShm = None,
    keys_file: Annotated[
        Path | None,
        typer.Option(help="File with tenants and hashes of their API keys (see `dyorc keys`); clients then need a key."),
    ] = None,
    allow_open: Annotated[
        bool | None,
        typer.Option("--allow-open/--no-allow-open", help="Listen beyond loopback without asking for keys or certificates."),
    ] = None,
    in_process: InProcess = None,
    app: Application = None,
    plan: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROGRAM=FILE",
            help="Run a program split over several processes, by a plan that `dyorc plan --inference` wrote. May be repeated.",
        ),
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="With --in-process: so many processes that share the ports, under a supervisor that starts them again if they "
            "end; auto: one for each core.",
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also log replicas that join and leave.")] = False,
    print_settings: Annotated[
        bool, typer.Option("--print-settings", help="Only print the settings and where each comes from.")
    ] = False,
) -> None:
    """Serves workflows over HTTP and gRPC; their programs run on a local Ray, a cluster, or in this process. Ctrl-C stops."""
    flags = {
        "workflows": targets or None, "app": app, "in_process": in_process,
        "cells.num_cells": None if cells is None else num_cells_of(cells),
        "gateway.host": host, "gateway.port": port, "gateway.grpc_port": grpc_port, "gateway.allow_open": allow_open,
        "gateway.keys_file": None if keys_file is None else str(keys_file), "gateway.allow_client_shm": allow_client_shm,
        "programs": plans_of(plan or ()),
    }  # fmt: skip
    reading = read_flags(config, flags, verbose)
    settings = reading.settings
    if print_settings:
        print_in_force(reading)
        return
    standard_streams.outlive_readers()
    workflows = workflows_of(reading, _console)
    if settings.cells.num_cells is None:
        logs.set_up(settings.telemetry.logs)
        if settings.in_process:
            malloc.keep_freed()
        uvloop.run(_serve(workflows, settings, settings.in_process))
    else:
        if not settings.in_process:
            raise ConfigurationError("--cells is for servers without Ray: add --in-process, or leave it out")
        become_supervisor(workflows, settings, num_cells_of(str(settings.cells.num_cells)))


def dev(
    targets: Targets = None,
    config: Config = None,
    host: Host = None,
    port: Port = None,
    grpc_port: GrpcPort = None,
    app: Application = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also log programs that move.")] = False,
) -> None:
    """Serves workflows without Ray, and loads them again whenever their code changes. Ctrl-C stops."""
    flags = {
        "workflows": targets or None, "app": app, "gateway.host": host, "gateway.port": port, "gateway.grpc_port": grpc_port,
    }  # fmt: skip
    reading = read_flags(config, flags, verbose)
    become_supervisor(workflows_of(reading, _console), reading.settings, 1, is_dev=True)


async def _serve(targets: list[str], settings: Settings, in_process: bool) -> None:
    def enter(console: Console, hurry: asyncio.Event) -> "AbstractAsyncContextManager[RunningServer]":
        from dyorc.server.program_loading import require_ray
        from dyorc.server.single_process import serve_embedded  # here, because `dyorc --help` does not need it

        if not in_process:
            require_ray()
            console.print("Starting a local Ray ...")
        return serve_embedded(targets, settings, without_ray=in_process, hurry=hurry)

    await serve_until_stopped(enter)


def run(
    target: Annotated[str, typer.Argument(metavar="PATH:WORKFLOW", help="The workflow, such as app.py:classify.")],
    inputs: Annotated[
        list[Path],
        typer.Option("--input", "-i", help="A .npy, .npz, .json or image file; several inputs come as .npz or .json, by name."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", callback=writable, help="Write the outputs to this .npz file instead of printing them."),
    ] = None,
) -> None:
    """Runs a workflow on one input in this process, without a server."""
    from dyorc.authoring.loading import load
    from dyorc.authoring.workflow import Workflow
    from dyorc.cli.input_files import print_outputs, read_inputs, write_outputs
    from dyorc.local import run as run_local

    started_s = time.perf_counter()
    model = load(target)
    result = run_local(model, **read_inputs(inputs, model.signature))
    is_streaming = isinstance(model, Workflow) and model.is_streaming
    arrays: dict[str, Any] = {}
    for number, part in enumerate(result if is_streaming else [result]):
        names = [f"{name}.{number}" if is_streaming else name for name in model.signature.outputs.names]
        named = dict(zip(names, model.signature.outputs.flatten(part, target), strict=True))
        arrays |= named
        if output is None:
            print_outputs(_console, named)
    if output is not None:
        write_outputs(output, arrays)
    _console.print(f"{time.perf_counter() - started_s:.2f} s, loading included", style="dim")


_SERVE, _LOOK, _CHANGE, _SIZE, _PLAN = "Serve", "Look", "Change what runs", "Size it", "Models split over devices"
"""Panels of ``dyorc --help``, in this order."""
_app.command(rich_help_panel=_SERVE)(serve)
_app.command(rich_help_panel=_SERVE)(dev)
_app.command(rich_help_panel=_SERVE)(run)
_app.command(rich_help_panel=_SERVE)(gateway)
_app.command(rich_help_panel=_SERVE)(orchestrator)
_app.command("cluster-keys", rich_help_panel=_SERVE)(cluster_keys)
_app.add_typer(keys, name="keys", rich_help_panel=_SERVE)
_app.add_typer(configuration, name="config", rich_help_panel=_SERVE)
_app.command(rich_help_panel=_LOOK)(status)
_app.command(rich_help_panel=_LOOK)(top)
_app.command(rich_help_panel=_LOOK)(explain)
_app.command(rich_help_panel=_LOOK)(trace)
_app.command(rich_help_panel=_LOOK)(profile)
_app.command(rich_help_panel=_LOOK)(doctor)
_app.command(rich_help_panel=_CHANGE)(replay)
_app.command(rich_help_panel=_CHANGE)(deploy)
_app.command(rich_help_panel=_CHANGE)(undeploy)
_app.command(rich_help_panel=_CHANGE)(rollback)
_app.command(rich_help_panel=_CHANGE)(scale)
# Its options, --help too, are the load generator's own.
_app.command(
    add_help_option=False, rich_help_panel=_SIZE, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)(load)
_app.add_typer(simulation, name="simulate", rich_help_panel=_SIZE)
_app.add_typer(plan, name="plan", rich_help_panel=_PLAN)
_app.add_typer(cluster, name="cluster", rich_help_panel=_PLAN)


if __name__ == "__main__":
    main()
