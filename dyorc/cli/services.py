"""``dyorc orchestrator`` and ``dyorc gateway``: the processes of a server that is split into several."""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
import uvloop
from rich.console import Console

from dyorc.cli.serving_options import (
    AllowClientShm,
    Config,
    GrpcPort,
    Host,
    InProcess,
    Port,
    Targets,
    read_flags,
    say_file,
    workflows_of,
)
from dyorc.config import Settings
from dyorc.server.stop_signals import StopSignals
from dyorc.supervisor.launch import become_supervisor, num_cells_of
from dyorc.system import standard_streams
from dyorc.telemetry import logs

if TYPE_CHECKING:
    from dyorc.server.running_server import RunningServer

_console = Console(soft_wrap=True, highlight=False)

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also log what is not a problem.")]


def orchestrator(
    targets: Targets = None,
    config: Config = None,
    group: Annotated[
        str | None, typer.Option(help="Its group: orchestrators that serve the same workflows, one at a time.")
    ] = None,
    in_process: InProcess = None,
    verbose: Verbose = False,
) -> None:
    """Runs workflows for gateways; one orchestrator of a group leads, the others stand by. Ctrl-C stops."""
    reading = read_flags(config, {"workflows": targets or None, "cluster.group": group, "in_process": in_process}, verbose)
    standard_streams.outlive_readers()
    workflows, settings = workflows_of(reading, _console), reading.settings
    logs.set_up(settings.telemetry.logs, group=settings.cluster.group)
    uvloop.run(_orchestrate(workflows, settings))


async def _orchestrate(targets: list[str], settings: Settings) -> None:
    from dyorc.server.orchestrator_process import serve_group  # here, because `dyorc --help` does not need it

    console = Console(soft_wrap=True, highlight=False, file=sys.stdout)  # users' modules may put something else there
    signals = StopSignals()
    await signals.run(lambda has_started: serve_group(targets, settings, console, signals, has_started))
    console.print("Stopped.")


def gateway(
    config: Config = None,
    host: Host = None,
    port: Port = None,
    grpc_port: GrpcPort = None,
    allow_client_shm: AllowClientShm = None,
    groups: Annotated[str | None, typer.Option(metavar="A,B", help="The groups of orchestrators that run its requests.")] = None,
    processes: Annotated[
        str | None,
        typer.Option(metavar="N|auto", help="So many processes share the ports, under a supervisor; auto: one for each core."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Serves HTTP and gRPC; orchestrators run the requests. Ctrl-C stops."""
    flags = {
        "gateway.host": host, "gateway.port": port, "gateway.grpc_port": grpc_port,
        "gateway.allow_client_shm": allow_client_shm,
        "cluster.groups": None if groups is None else [name for name in groups.split(",") if name],
        "cluster.num_gateways": None if processes is None else num_cells_of(processes, "--processes"),
    }  # fmt: skip
    reading = read_flags(config, flags, verbose)
    standard_streams.outlive_readers()
    say_file(reading, _console)
    settings = reading.settings
    if settings.cluster.num_gateways is not None:
        become_supervisor([], settings, num_cells_of(str(settings.cluster.num_gateways)), is_gateway=True)
    logs.set_up(settings.telemetry.logs)
    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    def enter(_: Console, hurry: asyncio.Event) -> "AbstractAsyncContextManager[RunningServer]":
        from dyorc.server.gateway_process import serve_gateway

        return serve_gateway(settings, hurry=hurry)

    await serve_until_stopped(enter)


EnterServer: TypeAlias = Callable[[Console, asyncio.Event], "AbstractAsyncContextManager[RunningServer]"]
"""Makes a server, which runs while entered. Gets the console, and the event that ends waiting for requests in flight."""


async def serve_until_stopped(enter: EnterServer) -> None:
    """Runs a server until a signal stops it; shows on the console where it listens and when it is ready.

    Args:
        enter: Called once signals are handled; may import what a mere ``dyorc --help`` should not.
    """
    from dyorc.server.loading_progress import show_progress

    console = Console(soft_wrap=True, highlight=False, file=sys.stdout)  # users' modules may put something else there
    signals = StopSignals()

    async def serve(has_started: Callable[[], None]) -> None:
        started_s = time.monotonic()
        async with enter(console, signals.hurry) as server:
            has_started()
            console.print(f"Listening on {server.url}")
            if server.grpc_address:
                console.print(f"gRPC on {server.grpc_address}")
            stopping = asyncio.create_task(signals.stop.wait())
            watching = asyncio.create_task(show_progress(console, server.status, server.wait_until_ready()))
            await asyncio.wait((stopping, watching), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
                models = ", ".join(sorted(server.catalog.models))
                console.print(f"Ready after {time.monotonic() - started_s:.1f} s. Models: {models or 'none'}. Ctrl-C stops.")
            watching.cancel()
            await stopping
            console.print("Stopping ...")

    await signals.run(serve)
    console.print("Stopped.")
