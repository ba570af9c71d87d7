"""A cell's process: `python -m dyorc.supervisor.cell_main DESCRIPTOR PARENT`. The supervisor starts it and sends its order."""

import asyncio
import contextlib
import faulthandler
import importlib
import itertools
import os
import signal
import socket
import sys

import uvloop

from dyorc.authoring.user_files import folders_of, is_below
from dyorc.config import Settings
from dyorc.errors import DyOrcError, ModuleImportError
from dyorc.server.peer_context import PeerContext
from dyorc.server.running_server import RunningServer
from dyorc.server.stop_signals import StopSignals
from dyorc.supervisor.cell_peers import CellPeers
from dyorc.supervisor.crash_attribution import FileCrashNotes
from dyorc.supervisor.tenant_table import TenantTable
from dyorc.system import malloc, standard_streams
from dyorc.system.descriptors import with_cure
from dyorc.system.garbage_collector import pause_garbage_collector
from dyorc.system.json_lines import JsonLineStream, Message
from dyorc.system.parent_process import die_with
from dyorc.telemetry import logs

_BEATS_PER_LIMIT = 8
_MAX_BEAT_S = 0.25
_COUNT_S = 1.0
"""How often a cell reports its counts."""
_SLOW_LIBRARIES = ("torch",)


def main() -> None:
    """Runs a cell."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)  # elsewhere than on Linux, the end of the connection ends it, unless it hangs
    standard_streams.outlive_readers()
    malloc.keep_freed()
    faulthandler.enable()  # shows where a program crashes the interpreter, or hangs
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    sys.exit(uvloop.run(_run(end)))


async def _run(end: socket.socket) -> int:
    channel = await JsonLineStream.open(end)
    while (order := await channel.receive()) is not None and order["kind"] == "prepare":
        _import_ahead(order["libraries"])
    if order is None:
        return 1
    try:
        await _Cell(order, channel).run()
    except (DyOrcError, OSError) as error:
        traceback = error.user_traceback if isinstance(error, ModuleImportError) else ""
        channel.send("failed", text=with_cure(str(error), error), traceback=traceback)
        return 1
    finally:
        channel.close()
    return 0


def _import_ahead(libraries: list[str]) -> None:
    for name in libraries:
        with contextlib.suppress(Exception), pause_garbage_collector():  # the user's code will raise the error again
            importlib.import_module(name)


class _Cell:
    """Serves until a signal stops it.

    Args:
        order: What to serve, from the supervisor.
        channel: The connection to the supervisor.
    """

    def __init__(self, order: Message, channel: JsonLineStream) -> None:
        self._order = order
        self._settings = settings_of_cell(Settings(**order["settings"]), order["num_cells"])
        self._channel = channel
        self._peers = CellPeers(order["number"], order["num_cells"], channel, _tenants(order), shares_backend=order["is_gateway"])
        self._peers.inherit(order["counted"])
        if order["warning"] is not None:
            self._peers.warn(order["warning"])
        self._signals = StopSignals((signal.SIGTERM,), same_s=0.0)  # the supervisor handles the other signals, and repeated ones
        self._stop = self._signals.stop
        self._is_listening = False

    async def run(self) -> None:
        """Serves.

        Raises:
            DyOrcError, OSError: See `serve_embedded`.
        """
        logs.set_up(self._settings.telemetry.logs, cell=self._order["number"])
        async with self._signals.watch():
            await self._serve_until_stopped()

    async def _serve_until_stopped(self) -> None:
        listening = asyncio.create_task(self._peers.listen())
        listening.add_done_callback(lambda _: self._stop.set())  # the supervisor is gone
        stopping = asyncio.create_task(self._stop.wait())
        serving = asyncio.create_task(self._serve())
        try:
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not self._is_listening:
                serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
        finally:
            self._peers.close()
            for task in (listening, stopping):
                task.cancel()

    async def _serve(self) -> None:
        order, settings = self._order, self._settings
        place = PeerContext(
            siblings=self._peers, num_cells=order["num_cells"], remembered=order["remembered"],
            listens_when_ready=order["listens_when_ready"], listener=_inherited_socket(order["listener"]),
            notes=_crash_notes(order["notes"]),
        )  # fmt: skip
        # Python compares bytecode by whole seconds and the file's length: it could miss a second change within a second.
        sys.dont_write_bytecode = order["is_dev"]
        async with self._server(place) as server:
            self._is_listening = True
            self._channel.send("listening", url=server.url, grpc_address=server.grpc_address, files=self._files())
            reporting = asyncio.create_task(self._report(server, settings.cells.hang_limit_s))
            await self._stop.wait()
            reporting.cancel()

    def _server(self, place: PeerContext) -> contextlib.AbstractAsyncContextManager[RunningServer]:
        if self._order["is_gateway"]:
            from dyorc.server.gateway_process import serve_gateway

            return serve_gateway(self._settings, place, self._signals.hurry)
        from dyorc.server.single_process import serve_embedded

        targets, hurry = self._order["targets"], self._signals.hurry
        return serve_embedded(targets, self._settings, without_ray=True, place=place, hurry=hurry)

    def _files(self) -> list[str]:
        """Returns the files of the user's imported modules, if the supervisor watches them."""
        if not self._order["is_dev"]:
            return []
        folders = folders_of(self._order["targets"])
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        return sorted({file for file in files if isinstance(file, str) and file.endswith(".py") and is_below(file, folders)})

    async def _report(self, server: RunningServer, hang_limit_s: float) -> None:
        """Reports when the programs are ready, and from then on that the event loop still runs."""
        async for _ in server.wait_until_ready():
            pass
        self._peers.send_states()
        self._channel.send("ready", models=sorted(server.catalog.models), files=self._files(), libraries=_libraries())
        beat_s = min(_MAX_BEAT_S, hang_limit_s / _BEATS_PER_LIMIT)
        for number in itertools.count():
            await asyncio.sleep(beat_s)
            self._channel.send("beat")
            if number % max(1, round(_COUNT_S / beat_s)) == 0:
                self._peers.count()


def _libraries() -> list[str]:
    """Returns which slow libraries are loaded. Only these: others may read what the user's module sets in the environment."""
    return [name for name in _SLOW_LIBRARIES if name in sys.modules]


def _tenants(order: Message) -> TenantTable | None:
    descriptor, num_cells = order["tenants"], order["num_cells"]
    if descriptor is None or num_cells == 1:
        return None
    os.set_inheritable(descriptor, False)
    return TenantTable(descriptor, order["number"], num_cells)


def _crash_notes(descriptor: int | None) -> FileCrashNotes | None:
    if descriptor is None:
        return None
    os.set_inheritable(descriptor, False)
    return FileCrashNotes(descriptor)


def _inherited_socket(descriptor: int | None) -> socket.socket | None:
    if descriptor is None:
        return None
    inherited = socket.socket(fileno=descriptor)
    inherited.set_inheritable(False)
    return inherited


def settings_of_cell(settings: Settings, num_cells: int) -> Settings:
    """Returns the settings of one of several cells, with its share of the limits that protect the whole machine's memory."""
    gateway, engine, jobs = settings.gateway, settings.engine, settings.jobs

    def share(limit: int) -> int:
        return -(-limit // num_cells)

    largest = min(gateway.max_request_bytes, gateway.max_bytes_in_flight)  # a request of this size must fit into each cell
    gateway_limits = {
        "max_requests": share(gateway.max_requests),
        "max_connections": share(gateway.max_connections),
        "max_bytes_in_flight": max(share(gateway.max_bytes_in_flight), largest),
    }
    return settings.model_copy(
        update={
            "gateway": gateway.model_copy(update=gateway_limits),
            "engine": engine.model_copy(update={"max_requests": share(engine.max_requests)}),
            "jobs": jobs.model_copy(update={"max_running": share(jobs.max_running)}),
        }
    )


if __name__ == "__main__":
    main()
