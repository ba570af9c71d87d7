"""`dyorc dev`: one cell that is restarted when its code changes. Only the standard library."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from dyorc.authoring.user_files import folders_of
from dyorc.core.counts import count
from dyorc.server.stop_signals import StopSignals
from dyorc.supervisor.cell_process import CellProcess, RestartBackoff, abort_hanging_cells
from dyorc.supervisor.console import StartProgress, report_error, say
from dyorc.supervisor.file_watcher import FileWatcher
from dyorc.supervisor.supervisor_config import SupervisorConfig
from dyorc.system.json_lines import Message
from dyorc.system.ports import bind, port_of, reserve_for_grpc

_BACKLOG = 4096
_STOP_TIMEOUT_S = 2.0
"""How long a stop waits for cells, and how much longer than its drain an earlier cell may take to end after a change."""
_READ_TIMEOUT_S = 2.0
_CHUNK_BYTES = 65_536


class DevServer:
    """Runs until a signal stops it.

    This process keeps listening for HTTP, and each cell inherits the socket. So the port stays the same, and connections that
    come while the code is loaded wait for the next cell. If the next cell cannot start, this process answers with the reason.
    """

    _listener: socket.socket

    def __init__(self, config: SupervisorConfig) -> None:
        self._config = config
        self._spare: CellProcess | None = None
        self._libraries: list[str] = []
        self._cell: CellProcess | None = None
        self._watcher = FileWatcher(folders_of(config.targets))
        self._restarts = RestartBackoff(config.restart_delay_s, config.max_restart_delay_s)
        self._progress = StartProgress(1)
        self._began_s = config.started_s
        self._has_started = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: set[CellProcess] = set()

    async def run(self) -> int:
        """Returns the exit code.

        Raises:
            OSError: If an address is not available.
        """
        config = self._config
        with contextlib.ExitStack() as stack:
            listener = self._listener = stack.enter_context(bind(config.host, config.port))
            listener.listen(_BACKLOG)
            port, grpc_port = port_of(listener), None
            if config.grpc_port is not None:
                grpc_port = port_of(stack.enter_context(reserve_for_grpc(config.host, config.grpc_port)))
            settings = config.settings_with_ports(port, grpc_port)
            host = f"[{config.host}]" if ":" in config.host else config.host
            self._progress.listening(f"{'https' if self._has_tls else 'http'}://{host}:{port}", "")
            signals = StopSignals()
            signals.install()
            tasks = [
                asyncio.create_task(work)
                for work in (
                    self._run_cells(settings),
                    abort_hanging_cells(self._running_cells, config.hang_limit_s),
                    signals.stop.wait(),
                )
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            say("Stopping ...")
            self._end_cell()
            if self._spare is not None:
                self._spare.process.kill()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_STOP_TIMEOUT_S)
            for cell in self._ending:
                cell.process.kill()
            await asyncio.gather(*self._tasks)
            for task in done:
                task.result()
        say("Stopped.")
        return 0

    @property
    def _has_tls(self) -> bool:
        return bool(self._config.settings["gateway"]["tls_certificate_file"])

    def _running_cells(self) -> tuple[CellProcess, ...]:
        return () if self._cell is None else (self._cell,)

    async def _run_cells(self, settings: Message) -> None:
        while True:
            self._watcher.begin()
            cell = self._cell = await self._next_cell()
            cell.order(
                targets=self._config.targets, settings=settings, num_cells=1, number=0,
                remembered={}, listens_when_ready=False, is_dev=True, is_gateway=False, listener=self._listener.fileno(),
                notes=None, warning=None, tenants=None, counted=None,
            )  # fmt: skip
            changing = asyncio.create_task(self._watcher.wait_for_change())
            ending = asyncio.create_task(cell.wait_until_ended())
            try:
                await asyncio.wait((changing, ending), return_when=asyncio.FIRST_COMPLETED)
                if not changing.done():
                    await self._wait_to_retry(cell, changing)
                if changing.done():
                    self._began_s = time.monotonic()
                    say(f"{', '.join(changing.result())} changed: loading again ...")
            finally:
                changing.cancel()
            self._end_cell()

    async def _wait_to_retry(self, cell: CellProcess, changing: asyncio.Task[list[str]]) -> None:
        """Handles a cell that has ended by itself. Returns when another attempt makes sense."""
        failure = cell.failure
        if failure is None:
            text = f"the cell (process {cell.process.pid}) {cell.describe_end()}"
            report_error(text)
        else:
            text = failure["text"] if not failure["traceback"] else f"{failure['text']}\n{failure['traceback']}"
            report_error(failure["text"], failure["traceback"])
        if cell.is_ready:  # a request crashed it
            await asyncio.wait((changing,), timeout=self._restarts.delay_s(time.monotonic() - cell.started_s))
            self._began_s = time.monotonic()
            return
        self._watcher.watch_everything()
        say("Waiting for a change ...")
        self._start(self._prepare())
        if self._has_tls:
            await asyncio.wait((changing,))
            return
        async with respond_with_error(self._listener, text):
            await asyncio.wait((changing,))

    def _end_cell(self) -> None:
        """Lets the cell finish its requests while the next one loads."""
        cell, self._cell = self._cell, None
        if cell is not None and not cell.has_ended:
            cell.stop()
            self._ending.add(cell)
            self._start(self._wait_or_kill(cell, self._config.drain_timeout_s + _STOP_TIMEOUT_S))

    async def _wait_or_kill(self, cell: CellProcess, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await cell.wait_until_ended()
        except TimeoutError:
            say(f"The code from before the change still ran requests after {timeout_s:g} s: they are cut off.")
            cell.process.kill()
            await cell.wait_until_ended()
        self._ending.discard(cell)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _next_cell(self) -> CellProcess:
        cell, self._spare = self._spare, None
        if cell is None or cell.has_ended:
            cell = CellProcess(0, self._on_message)
            await cell.start((self._listener.fileno(),))
        return cell

    async def _prepare(self) -> None:
        """Starts the process of the next cell, which imports the slow libraries ahead, without the user's code."""
        if self._spare is None:
            spare = self._spare = CellProcess(0, self._on_message)
            await spare.start((self._listener.fileno(),))
            spare.send("prepare", libraries=self._libraries)

    def _on_message(self, cell: CellProcess, message: Message) -> None:
        if cell is not self._cell and message["kind"] != "failed":
            return  # it is stopping
        match message["kind"]:
            case "beat":
                cell.beaten_s = time.monotonic()
            case "listening":
                self._watcher.watch(message["files"])
                self._progress.listening(message["url"], message["grpc_address"])
            case "states":
                self._progress.states(cell.number, message["programs"])
            case "ready":
                self._on_ready(cell, message)
            case "failed":
                cell.failure = message
            case "counted" | "remember":
                pass  # the next cell runs other code, so its counts start from 0, and what is deployed is in the store
            case _:
                raise ValueError(f"a cell sent a message of the unknown kind {message['kind']!r}")

    def _on_ready(self, cell: CellProcess, message: Message) -> None:
        cell.is_ready = True
        cell.beaten_s = time.monotonic()
        self._watcher.watch(message["files"])
        self._libraries = message["libraries"]
        self._start(self._prepare())
        after_s = time.monotonic() - self._began_s
        models = ", ".join(message["models"])
        if self._has_started:
            say(f"Ready again after {after_s:.1f} s. Models: {models or 'none'}.")
        else:
            self._has_started = True
            files = count(self._watcher.num_files, "file")
            say(f"Ready after {after_s:.1f} s. Models: {models or 'none'}. Watching {files}. Ctrl-C stops.")


@contextlib.asynccontextmanager
async def respond_with_error(listener: socket.socket, text: str) -> AsyncGenerator[None]:
    """Answers every HTTP request with 503 and the reason while entered, in place of a cell that cannot start.

    Args:
        listener: A listening socket, which stays open.
        text: Why nothing works.
    """
    # Only a change of the code helps, so clients need not try again.
    body = json.dumps({"error": text, "code": "not_ready", "retryable": False}).encode()
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    response = f"{head}Connection: close\r\n\r\n".encode() + body

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_READ_TIMEOUT_S):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(response)
                writer.write_eof()
                while await reader.read(_CHUNK_BYTES):  # closing while the client still writes would lose the response
                    pass
        writer.close()

    server = await asyncio.start_server(handle, sock=listener.dup())
    try:
        yield
    finally:
        server.close()
