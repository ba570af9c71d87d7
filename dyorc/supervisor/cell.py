"""A cell's process: `python -m dyorc.supervisor.cell DESCRIPTOR PARENT`. The supervisor starts it and says what to serve."""

import asyncio
import contextlib
import ctypes
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
from dyorc.server.garbage_collector import pause_garbage_collector
from dyorc.server.peer_context import PeerContext
from dyorc.server.running_server import RunningServer
from dyorc.server.stop_signals import StopSignals
from dyorc.supervisor.channel import CellChannel, Message, open_channel
from dyorc.supervisor.limits import settings_of_cell
from dyorc.supervisor.notes import MemfdCrashNotes
from dyorc.supervisor.siblings import CellPeers
from dyorc.supervisor.tenant_table import TenantTable
from dyorc.system import malloc, standard_streams
from dyorc.telemetry import logs

_PR_SET_PDEATHSIG = 1
_BEATS_PER_LIMIT = 8
_MAX_BEAT_S = 0.25
_COUNT_S = 1.0
"""How often a cell says what it has counted."""
_SLOW_LIBRARIES = ("torch",)


def main() -> None:
    """Runs one."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent)
    standard_streams.outlive_readers()
    malloc.keep_freed()
    faulthandler.enable()  # a program that crashes the interpreter, or hangs in it, shows where
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    sys.exit(uvloop.run(_run(end)))


def _die_with(parent: int) -> None:
    """Has the kernel kill this process when its supervisor ends, even if it hangs."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)


async def _run(end: socket.socket) -> int:
    channel = await open_channel(end)
    while (order := await channel.receive()) is not None and order["kind"] == "prepare":
        _import_ahead(order["libraries"])
    if order is None:
        return 1
    try:
        await _Cell(order, channel).run()
    except (DyOrcError, OSError) as error:
        traceback = error.user_traceback if isinstance(error, ModuleImportError) else ""
        channel.send("failed", text=str(error), traceback=traceback)
        return 1
    finally:
        channel.close()
    return 0


def _import_ahead(libraries: list[str]) -> None:
    for name in libraries:
        with contextlib.suppress(Exception), pause_garbage_collector():  # the user's code will raise it again
            importlib.import_module(name)


class _Cell:
    """Serves until it is told to stop.

    Args:
        order: What to serve, from the supervisor.
        channel: To it.
    """

    def __init__(self, order: Message, channel: CellChannel) -> None:
        self._order = order
        self._settings = settings_of_cell(Settings(**order["settings"]), order["num_cells"])
        self._channel = channel
        self._siblings = CellPeers(
            order["number"], order["num_cells"], channel, _tenants(order), shares_backend=order["is_gateway"]
        )
        self._siblings.inherit(order["counted"])
        if order["warning"] is not None:
            self._siblings.warn(order["warning"])
        self._signals = StopSignals((signal.SIGTERM,), same_s=0.0)  # the supervisor has heeded the others, and counted them
        self._stop = self._signals.stop
        self._is_listening = False

    async def run(self) -> None:
        """Serves.

        Raises:
            DyOrcError, OSError: See `serve_embedded`.
        """
        logs.set_up(self._settings.telemetry.logs, cell=self._order["number"])
        async with self._signals.watch():
            await self._serve_until_told()

    async def _serve_until_told(self) -> None:
        listening = asyncio.create_task(self._siblings.listen())
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
            self._siblings.close()
            for task in (listening, stopping):
                task.cancel()

    async def _serve(self) -> None:
        order, settings = self._order, self._settings
        place = PeerContext(
            siblings=self._siblings, num_cells=order["num_cells"], remembered=order["remembered"],
            listens_when_ready=order["listens_when_ready"], listener=_inherited(order["listener"]), notes=_notes(order["notes"]),
        )  # fmt: skip
        # Bytecode is found by whole seconds and the file's length: a second change within a second could go unnoticed.
        sys.dont_write_bytecode = order["is_dev"]
        async with self._server(place) as server:
            self._is_listening = True
            self._channel.send("listening", url=server.url, grpc_address=server.grpc_address, files=self._files())
            live = asyncio.create_task(self._live(server, settings.cells.hang_limit_s))
            await self._stop.wait()
            live.cancel()

    def _server(self, place: PeerContext) -> contextlib.AbstractAsyncContextManager[RunningServer]:
        if self._order["is_gateway"]:
            from dyorc.server.gateway.gateway_process import serve_gateway

            return serve_gateway(self._settings, place, self._signals.hurry)
        from dyorc.server.single_process import serve_embedded

        targets, hurry = self._order["targets"], self._signals.hurry
        return serve_embedded(targets, self._settings, without_ray=True, place=place, hurry=hurry)

    def _files(self) -> list[str]:
        """Returns the user's modules that are imported, if somebody watches them."""
        if not self._order["is_dev"]:
            return []
        folders = folders_of(self._order["targets"])
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        return sorted({file for file in files if isinstance(file, str) and file.endswith(".py") and is_below(file, folders)})

    async def _live(self, server: RunningServer, hang_limit_s: float) -> None:
        """Says when the programs are ready, and from then on, that the event loop turns."""
        async for _ in server.wait_until_ready():
            pass
        self._siblings.tell()
        self._channel.send("ready", models=sorted(server.catalog.models), files=self._files(), libraries=_libraries())
        beat_s = min(_MAX_BEAT_S, hang_limit_s / _BEATS_PER_LIMIT)
        for number in itertools.count():
            await asyncio.sleep(beat_s)
            self._channel.send("beat")
            if number % max(1, round(_COUNT_S / beat_s)) == 0:
                self._siblings.count()


def _libraries() -> list[str]:
    """Returns which slow libraries are loaded. Not all of the user's: some read what a module has set in the environment."""
    return [name for name in _SLOW_LIBRARIES if name in sys.modules]


def _tenants(order: Message) -> TenantTable | None:
    descriptor, num_cells = order["tenants"], order["num_cells"]
    if descriptor is None or num_cells == 1:
        return None
    os.set_inheritable(descriptor, False)
    return TenantTable(descriptor, order["number"], num_cells)


def _notes(descriptor: int | None) -> MemfdCrashNotes | None:
    if descriptor is None:
        return None
    os.set_inheritable(descriptor, False)
    return MemfdCrashNotes(descriptor)


def _inherited(descriptor: int | None) -> socket.socket | None:
    if descriptor is None:
        return None
    found = socket.socket(fileno=descriptor)
    found.set_inheritable(False)
    return found


if __name__ == "__main__":
    main()
