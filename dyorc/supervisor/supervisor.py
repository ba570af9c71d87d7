"""Starts cells that share a port, restarts cells that end, and kills cells that hang. Only the standard library."""

import asyncio
import contextlib
import os
import time

from dyorc.server.stop_signals import StopSignals, before
from dyorc.supervisor.cell_process import CellProcess, RestartBackoff, abort_hanging_cells
from dyorc.supervisor.console import StartProgress, report_error, say
from dyorc.supervisor.crash_attribution import CrashAttribution
from dyorc.supervisor.hub import CellHub
from dyorc.supervisor.supervisor_config import SupervisorConfig
from dyorc.supervisor.tenant_table import clear_in_flight, make_table
from dyorc.system.json_lines import Message
from dyorc.system.ports import reserve_all

_STOP_GRACE_S = 10.0
"""How much longer than its drain a cell may take to stop."""


class Supervisor:
    """Runs until a signal stops it, or the cells cannot start."""

    _tenants: int

    def __init__(self, config: SupervisorConfig) -> None:
        self._config = config
        self._cells: dict[int, CellProcess] = {}
        self._hub = CellHub(self._cells, config.num_cells)
        engine = config.settings["engine"]
        self._crashes = CrashAttribution(engine["refuse_inputs_s"], engine["max_refused_inputs"])
        self._signals = StopSignals()
        self._has_started = False
        self._exit_code = 0
        self._order: Message = {}
        self._progress = StartProgress(config.num_cells)

    async def run(self) -> int:
        """Returns the exit code.

        Raises:
            OSError: If an address is not available.
        """
        config = self._config
        with contextlib.ExitStack() as stack:
            stack.callback(self._crashes.close)
            self._tenants = make_table(config.num_cells)
            stack.callback(os.close, self._tenants)
            port, grpc_port = reserve_all(stack, config.host, config.port, config.grpc_port)
            self._order = {
                "targets": config.targets, "settings": config.settings_with_ports(port, grpc_port),
                "num_cells": config.num_cells, "is_dev": False, "is_gateway": config.is_gateway, "listener": None,
            }  # fmt: skip
            self._signals.install()
            running = [asyncio.create_task(self._keep_running(number)) for number in range(config.num_cells)]
            watching = asyncio.create_task(abort_hanging_cells(self._cells.values, config.hang_limit_s))
            stopping = asyncio.create_task(self._signals.stop.wait())
            done, _ = await asyncio.wait((*running, watching, stopping), return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, stopping, *running):
                task.cancel()
            if not self._exit_code:
                say("Stopping ...")
            await self._stop_cells()
            for task in done:
                task.result()
        if not self._exit_code:
            say("Stopped.")
        return self._exit_code

    # One cell

    async def _keep_running(self, number: int) -> None:
        """Starts a cell, and restarts it whenever it ends. Returns if the server cannot start."""
        restarts = RestartBackoff(self._config.restart_delay_s, self._config.max_restart_delay_s)
        while True:
            cell = self._cells[number] = CellProcess(number, self._on_message)
            # Where other cells serve, no client should wait for a cell that is still loading.
            others_serve = any(other.is_ready and other.states is not None for other in self._cells.values())
            notes = self._crashes.notes_of(number)
            await cell.start((notes, self._tenants))
            cell.order(
                **self._order, number=number, remembered=self._hub.remembered, notes=notes,
                warning=self._crashes.current_warning(), tenants=self._tenants, counted=self._hub.counted_by(number),
                listens_when_ready=self._has_started and others_serve,
            )  # fmt: skip
            await cell.wait_until_ended()
            clear_in_flight(self._tenants, number)
            self._hub.drop_questions(cell)
            cell.states = None
            self._send_states()
            if cell.failure is not None:
                report_error(cell.failure["text"], cell.failure["traceback"])
                if not self._has_started:
                    self._exit_code = 1
                    return
            else:
                warning = self._crashes.record_crash(number, cell.process.returncode, cell.describe_end())
                self._hub.tell_all("warning", value=warning)
            delay_s = restarts.delay_s(time.monotonic() - cell.started_s)
            again = f"in {delay_s:g} s" if delay_s else "now"
            report_error(f"cell {number} (process {cell.process.pid}) {cell.describe_end()}; it starts again {again}")
            await asyncio.sleep(delay_s)

    def _on_message(self, cell: CellProcess, message: Message) -> None:
        match message["kind"]:
            case "beat":
                cell.beaten_s = time.monotonic()
            case "listening":
                self._progress.listening(message["url"], message["grpc_address"])
            case "states":
                cell.states = message["programs"]
                self._progress.states(cell.number, message["programs"])
                self._send_states()
            case "ready":
                self._on_ready(cell, message["models"])
            case "failed":
                cell.failure = message
            case _:
                self._hub.handle(cell, message)

    def _on_ready(self, cell: CellProcess, models: list[str]) -> None:
        cell.is_ready = True
        cell.beaten_s = time.monotonic()
        if self._has_started:
            say(f"Cell {cell.number} is ready again, {time.monotonic() - cell.started_s:.1f} s after its start.")
        elif len(self._cells) == self._config.num_cells and all(other.is_ready for other in self._cells.values()):
            self._has_started = True
            self._send_states()
            self._progress.ready(time.monotonic() - self._config.started_s, models)

    def _send_states(self) -> None:
        """Sends the states of all cells' programs to all cells."""
        states = [[cell.number, cell.states] for cell in self._cells.values() if cell.states is not None]
        is_complete = len(states) == self._config.num_cells
        for cell in self._cells.values():
            cell.send("siblings", states=states, is_complete=is_complete, has_started=self._has_started)

    # All cells

    async def _stop_cells(self) -> None:
        cells = [cell for cell in self._cells.values() if not cell.has_ended]
        for cell in cells:
            cell.stop()
        ends = [asyncio.create_task(cell.wait_until_ended()) for cell in cells]
        limit_s = self._config.drain_timeout_s + _STOP_GRACE_S
        if ends and not await before(self._signals.hurry, asyncio.wait(ends, timeout=limit_s)):
            for cell in cells:
                cell.stop()
            await asyncio.wait(ends, timeout=_STOP_GRACE_S)
        for cell in cells:
            if not cell.has_ended:
                report_error(f"cell {cell.number} (process {cell.process.pid}) did not stop, and is killed")
                await cell.abort()
        await asyncio.gather(*ends)
