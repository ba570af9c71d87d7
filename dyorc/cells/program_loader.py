"""Loads the programs of a fleet, each on the thread or event loop that will run it."""

import asyncio
import time
from functools import partial

from dyorc.authoring.call_style import CallStyle
from dyorc.authoring.program import Program
from dyorc.cells.hosted_calls import HostedCalls
from dyorc.cells.hosted_program import FleetContext, HostedProgram
from dyorc.cells.program_group import ProgramGroup, ProgramGroups
from dyorc.errors import ProgramLoadError
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.ongoing_calls import load_on
from dyorc.replica.program_lifecycle import load_and_warm_up
from dyorc.replica.program_loop import ProgramLoop
from dyorc.replica.program_loops import ProgramLoops
from dyorc.replica.program_thread import ProgramThread, ThreadStoppedError
from dyorc.replica.user_code import has_thread_settings, keep_ours
from dyorc.telemetry.tracing.program_spans import ProgramSpans

_STOP_TIMEOUT_S = 5.0
_NUM_BEFORE_TIDYING = 64
"""Threads that may be known before the first look for those that have ended."""


class ProgramLoader:
    """Loads one program at a time: loading user code may change settings of the whole process. Used on the event loop.

    Args:
        groups: The groups that share a thread.
        max_hung: After so many threads of a program hang, it is not loaded again.
        spans: Where spans of the programs' code go; None if nothing is traced.
    """

    def __init__(self, groups: ProgramGroups, max_hung: int, spans: ProgramSpans | None) -> None:
        self._groups = groups
        self._max_hung = max_hung
        self._spans = spans
        self._threads: dict[str, list[ProgramThread | ProgramLoop]] = {}
        """By their owner, a program or a group: a server of many programs has as many threads."""
        self._num_added = 0
        self._loops = ProgramLoops()
        self._loading = asyncio.Lock()

    async def load(self, program: Program, context: FleetContext) -> tuple[HostedProgram | HostedCalls, float] | None:
        """Returns a loaded program, and how long that took in seconds; None if its group was given up meanwhile.

        Raises:
            ProgramLoadError: If it cannot be loaded.
        """
        async with self._loading:
            if program.style is CallStyle.PLAIN:
                return await self._load_on_thread(program, context)
            return await self._load_on_loop(program, context)

    async def stop(self) -> None:
        """Ends all threads, and waits for that for a while."""
        for thread in self._all():
            thread.stop()
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        give_up_s = time.monotonic() + _STOP_TIMEOUT_S
        for thread in self._all():
            thread.join(max(0.0, give_up_s - time.monotonic()))

    async def _load_on_thread(self, program: Program, context: FleetContext) -> tuple[HostedProgram, float] | None:
        """Loads a program that computes."""
        group = self._groups.of(program)
        thread = self._thread_of(program, group)
        context.status.loading(program.name)
        try:
            loaded = await thread.run(partial(_load, program))
        except ThreadStoppedError:
            return None
        except asyncio.CancelledError:
            _end(thread, program.name, group)
            raise
        if isinstance(loaded, ProgramLoadError):
            _end(thread, program.name, group)
            raise loaded
        executor, load_s, has_settings = loaded
        self._settle(executor)
        hosted = HostedProgram(program, executor, thread, context, may_move=not has_settings, group=group)
        if group is not None:
            group.joined(program.name)
        return hosted, load_s

    async def _load_on_loop(self, program: Program, context: FleetContext) -> tuple[HostedCalls, float] | None:
        """Loads a program that waits or yields, on an event loop of its own or its group's."""
        group = self._groups.of(program) if program.style.is_async else None
        self._check_hung(program.name, program.name if group is None else group.name)
        started_s = time.monotonic()
        loop = self._loops.open(program)
        if loop not in self._threads.get(loop.program, ()):
            self._know(loop)
        context.status.loading(program.name)
        try:
            executor = await asyncio.wrap_future(load_on(loop, program))
        except ThreadStoppedError:
            return None
        except BaseException:
            self._loops.close(loop)
            raise
        self._settle(executor)
        return HostedCalls(program, executor, loop, self._loops, context, group), time.monotonic() - started_s

    def _settle(self, executor: ProgramExecutor) -> None:
        keep_ours()
        executor.trace_by(self._spans)

    def _thread_of(self, program: Program, group: ProgramGroup | None) -> ProgramThread:
        """Returns the thread that loads a program: its group's, or a new one."""
        if group is not None and (thread := group.running_thread) is not None:
            return thread
        owner = program.name if group is None else group.name
        self._check_hung(program.name, owner)
        thread = ProgramThread(owner, asyncio.get_running_loop()) if group is None else group.start_thread()
        self._know(thread)
        return thread

    def _know(self, thread: ProgramThread | ProgramLoop) -> None:
        """Adds a thread. The ended ones are forgotten each time that as many were added as are known, so that a thread costs the
        same however many there are."""
        self._threads.setdefault(thread.program, []).append(thread)
        self._num_added += 1
        if self._num_added > max(_NUM_BEFORE_TIDYING, len(self._threads)):
            self._num_added = 0
            for owner in list(self._threads):
                self._alive(owner)

    def _alive(self, owner: str) -> list[ProgramThread | ProgramLoop]:
        """Returns the threads of a program or a group that run, and forgets the others."""
        alive = [thread for thread in self._threads.get(owner, ()) if thread.is_alive]
        if alive:
            self._threads[owner] = alive
        else:
            self._threads.pop(owner, None)
        return alive

    def _all(self) -> list[ProgramThread | ProgramLoop]:
        return [thread for threads in self._threads.values() for thread in threads]

    def _check_hung(self, program: str, owner: str) -> None:
        """Raises ProgramLoadError if too many of the owner's threads hang."""
        if len(self._alive(owner)) >= self._max_hung:
            reason = f"{self._max_hung} of its batches hang, and threads cannot be killed; restart the server"
            raise ProgramLoadError(program, "TimeoutError", reason)


def _end(thread: ProgramThread, program: str, group: ProgramGroup | None) -> None:
    """Ends the thread of a program that was not loaded, unless others of its group use it."""
    if group is None:
        thread.stop()
    else:
        group.left(program)


def _load(program: Program) -> tuple[ProgramExecutor, float, bool] | ProgramLoadError:
    """Returns a loaded program, how long that took in seconds, and whether it has settings for its thread."""
    started_s = time.monotonic()
    try:
        return load_and_warm_up(program), time.monotonic() - started_s, has_thread_settings()
    except ProgramLoadError as error:
        return error
