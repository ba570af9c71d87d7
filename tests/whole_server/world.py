"""Virtual time, processes and threads: one virtual thread runs at a time, and a seed chooses which.

A virtual thread is a greenlet. It runs until it waits (`World.park`) or offers a turn (`World.give_way`); then the world picks
the next among all that can run, of all processes. When none can, time jumps to the next timer. A killed process's threads never
run again, so that nothing of it happens afterwards, not even a ``finally``; a stopped one's wait until it continues.
"""

import asyncio
import hashlib
import heapq
import itertools
import random
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from greenlet import getcurrent, greenlet

_STEP_NS = 2_000
"""What a turn of a virtual thread takes at least: code that looks at the clock until a time is over gets there."""
READ_NS = 100
"""What a look at the clock takes."""
_MAX_STILL_STEPS = 2_000_000
"""So many turns within a second of virtual time: something spins."""
_FIRST_IDENT = 1 << 40
"""Above all identifiers of real threads."""


class ProcessState(Enum):
    """Of a virtual process."""

    RUNNING = auto()
    STOPPED = auto()
    DEAD = auto()


class SpinningError(Exception):
    """Virtual threads take turns without end, and time does not pass."""


class VirtualProcess:
    """A virtual process: threads that stop and die together.

    Attributes:
        name: Unique in its world, as ``gateway-1#2``, the second one in that place.
        pid: Its number.
        state: Whether it runs.
        exit: How it ended; empty before.
        on_end: Called when it is dead, in the order of adding.
        on_stop: Called when it is stopped.
        locks: What it holds, each with a ``release``; in order.
    """

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.state = ProcessState.RUNNING
        self.exit = ""
        self.was_killed = False
        self.on_end: list[Callable[[], None]] = []
        self.on_stop: list[Callable[[], None]] = []
        self.held: list[VirtualThread] = []
        self.locks: dict[Any, None] = {}

    @property
    def wait_status(self) -> int:
        """How it ended, as `os.waitpid` says it."""
        if self.was_killed:
            return signal.SIGKILL
        return 0 if self.exit == "ended" else 1 << 8

    def __repr__(self) -> str:
        return self.name

    @property
    def kind(self) -> str:
        """What it is, without its place's number: ``gateway``."""
        return self.name.partition("-")[0]


class VirtualThread:
    """A thread of control of a virtual process.

    Attributes:
        ident: What `threading.get_ident` says in it.
        loop: The event loop that runs on it; None without one.
        is_over: Whether it has ended.
        facade: The `threading.Thread` that stands for it.
    """

    def __init__(self, world: "World", process: VirtualProcess, name: str, run: Callable[[], None], ident: int) -> None:
        self.world = world
        self.process = process
        self.name = name
        self.ident = ident
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_over = False
        self.facade: Any = None
        self.values: dict[int, Any] = {}
        self.is_parked = False
        self.is_woken = False
        self.wait = 0
        self.greenlet = greenlet(run)


_running: VirtualThread | None = None
_kept: list[greenlet] = []
"""Those of the dead, too: one that is collected is resumed, with an error."""


def current_thread() -> VirtualThread | None:
    """Returns the running virtual thread; None outside of a world, and in its timers."""
    return _running


class World:
    """Everything of one run.

    Args:
        seed: All that is left to chance follows from it.
        write: Called with each line of the log.

    Attributes:
        now_ns: The monotonic clock.
        wall_shift_ns: Added to it, the wall clock.
        chance: For what the world and its faults choose.
    """

    def __init__(self, seed: int, write: Callable[[str], None]) -> None:
        self.now_ns = 1_000_000_000_000
        self.wall_shift_ns = 1_750_000_000_000_000_000
        self.chance = random.Random(f"world {seed}")
        self.num_steps = 0
        self.processes: list[VirtualProcess] = []
        self._write = write
        self._draw = random.Random(f"switches {seed}").random
        self._runnable: list[VirtualThread] = []
        self._timers: list[tuple[int, int, VirtualThread | Callable[[], None], int]] = []
        self._numbers = itertools.count()
        self._idents = itertools.count(_FIRST_IDENT)
        self._pids = itertools.count(1001)
        self._hub = getcurrent()
        self._digest = hashlib.blake2b(digest_size=16)
        self._failure: BaseException | None = None
        self._is_over = False
        self._limit_ns = 0
        self._hooked: Any = None
        self._second_ns = 0
        self._still_steps = 0

    # Clocks and log

    @property
    def elapsed_s(self) -> float:
        """Virtual seconds since the beginning."""
        return (self.now_ns - 1_000_000_000_000) / 1e9

    def log(self, text: str, **facts: object) -> None:
        """Writes a line."""
        thread = current_thread()
        where = "world" if thread is None else thread.process.name
        details = "".join(f" {name}={value}" for name, value in facts.items())
        self._write(f"{self.elapsed_s:12.6f} {where}: {text}{details}")

    @property
    def digest(self) -> str:
        """Stands for all choices so far: which thread ran when."""
        return self._digest.hexdigest()

    # Processes and threads

    def start_process(self, name: str, main: Callable[[], object]) -> VirtualProcess:
        """Starts a process, whose main thread calls `main`; it ends when that returns."""
        process = VirtualProcess(name, next(self._pids))
        self.processes.append(process)
        self.log("starts", process=name, pid=process.pid)

        def run() -> None:
            try:
                main()
                text = "ended"
            except SystemExit as error:
                text = f"exit {error.code}"
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                self.log(" | ".join("".join(traceback.format_exception(error)).splitlines()))
            self.end_process(process, text)

        self.start_thread("main", run, process)
        return process

    def start_thread(self, name: str, run: Callable[[], None], process: VirtualProcess | None = None) -> VirtualThread:
        """Starts a thread, by default in the process of the running one."""
        if process is None:
            here = current_thread()
            assert here is not None
            process = here.process

        def guarded() -> None:
            try:
                run()
            except SystemExit:
                pass
            except BaseException as error:  # of the simulation itself: a thread's own errors are handled in it
                self._failure = self._failure or error
            thread.is_over = True

        thread = VirtualThread(self, process, name, guarded, next(self._idents))
        thread.greenlet.parent = self._hub
        _kept.append(thread.greenlet)
        self._add_runnable(thread)
        return thread

    def kill(self, process: VirtualProcess) -> None:
        """Ends a process as SIGKILL does."""
        process.was_killed = True
        self.end_process(process, "killed")

    def end_process(self, process: VirtualProcess, text: str) -> None:
        """Ends a process: its threads never run again. Does not return in one of them."""
        if process.state is not ProcessState.DEAD:
            process.state, process.exit = ProcessState.DEAD, text
            self.log("is over", process=process.name, how=text)
            for call in process.on_end:
                call()
            for lock in list(process.locks):
                lock.release()
        thread = current_thread()
        if thread is not None and thread.process is process:
            self._switch(thread)

    def stop(self, process: VirtualProcess) -> None:
        """Stops a process as SIGSTOP does."""
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.STOPPED
            for call in process.on_stop:
                call()

    def resume(self, process: VirtualProcess) -> None:
        """Lets a stopped process go on."""
        if process.state is ProcessState.STOPPED:
            process.state = ProcessState.RUNNING
            self._runnable.extend(process.held)
            process.held.clear()

    # Waiting

    def park(self, until_ns: int | None = None) -> bool:
        """Waits in the running thread until it is woken or the time has come; returns whether it was woken."""
        thread = current_thread()
        assert thread is not None
        thread.wait += 1
        thread.is_parked, thread.is_woken = True, False
        if until_ns is not None:
            heapq.heappush(self._timers, (until_ns, next(self._numbers), thread, thread.wait))
        self._switch(thread)
        return thread.is_woken

    def wake(self, thread: VirtualThread) -> bool:
        """Ends a thread's wait; False if it waits for nothing, or is dead."""
        if not thread.is_parked or thread.process.state is ProcessState.DEAD:
            return False
        thread.is_parked, thread.is_woken = False, True
        self._add_runnable(thread)
        return True

    def give_way(self) -> None:
        """Lets others run, if the seed says so."""
        thread = current_thread()
        assert thread is not None
        self._pass_time()
        if self._runnable or self._failure is not None or (self._timers and self._timers[0][0] <= self.now_ns):
            self._add_runnable(thread)
            self._switch(thread)

    def maybe_give_way(self, ratio: float = 0.25) -> None:
        """Lets others run now and then: threads may be interrupted anywhere."""
        if self._draw() < ratio:
            self.give_way()

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Calls a function outside of all threads; it must not wait."""
        self.call_at(self.now_ns + int(delay_s * 1e9), call)

    def call_at(self, when_ns: int, call: Callable[[], None]) -> None:
        """See `call_later`."""
        heapq.heappush(self._timers, (when_ns, next(self._numbers), call, 0))

    # Who is next

    def end(self) -> None:
        """Ends the run after the present turn."""
        self._is_over = True

    def run(self, max_s: float) -> bool:
        """Runs until `end`; False if `max_s` virtual seconds have passed, or nothing will ever happen again.

        Raises:
            SpinningError: If threads take turns without end.
            BaseException: What a part of the simulation raised.
        """
        global _running
        self._limit_ns = self.now_ns + int(max_s * 1e9)
        before = sys.get_asyncgen_hooks()
        try:
            while (thread := self._next()) is not None:
                thread.greenlet.switch()  # returns when a thread has ended, or none is next
                _running = None
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*before)
        if self._failure is not None:
            raise self._failure
        return self._is_over

    def _switch(self, here: VirtualThread) -> None:
        """Runs others until the next turn of a thread, the running one."""
        here.loop = asyncio._get_running_loop()
        thread = self._next()
        if thread is not here:
            (self._hub if thread is None else thread.greenlet).switch()

    def _next(self) -> VirtualThread | None:
        """Returns the thread whose turn it is, and makes the surroundings its own; None if the run is over."""
        global _running
        _running = None  # timers belong to no thread
        timers, runnable = self._timers, self._runnable
        while not self._is_over and self._failure is None:
            if timers and timers[0][0] <= self.now_ns:
                self._fire_timers()
            if runnable:
                thread = self._pick()
                if thread is not None:
                    _running = thread
                    return thread
            elif not timers or timers[0][0] > self._limit_ns:
                return None
            else:
                self.now_ns = max(self.now_ns, timers[0][0])
            if self.now_ns > self._limit_ns:
                return None
        return None

    def _fire_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now_ns:
            _, _, target, wait = heapq.heappop(timers)
            if not isinstance(target, VirtualThread):
                try:
                    target()
                except Exception as error:  # of the simulation itself
                    self._failure = self._failure or error
            elif target.is_parked and target.wait == wait and target.process.state is not ProcessState.DEAD:
                target.is_parked = False
                self._add_runnable(target)

    def _pick(self) -> VirtualThread | None:
        """Takes one of all that can run; None if its process may not go on."""
        runnable = self._runnable
        at = int(self._draw() * len(runnable))
        thread = runnable[at]
        runnable[at] = runnable[-1]
        runnable.pop()
        if thread.process.state is not ProcessState.RUNNING:
            if thread.process.state is ProcessState.STOPPED:
                thread.process.held.append(thread)
            return None
        self._pass_time()
        self._digest.update(b"%d %d;" % (thread.ident - _FIRST_IDENT, self.now_ns))
        loop: Any = thread.loop
        asyncio._set_running_loop(loop)
        if loop is not self._hooked:
            self._hooked = loop
            sys.set_asyncgen_hooks(*(loop.asyncgen_hooks if loop is not None else (None, None)))
        return thread

    def _add_runnable(self, thread: VirtualThread) -> None:
        if thread.process.state is ProcessState.STOPPED:
            thread.process.held.append(thread)
        elif thread.process.state is ProcessState.RUNNING:
            self._runnable.append(thread)

    def _pass_time(self) -> None:
        self.num_steps += 1
        self.now_ns += _STEP_NS
        second_ns = self.now_ns // 1_000_000_000
        if second_ns != self._second_ns:
            self._second_ns, self._still_steps = second_ns, 0
        self._still_steps += 1
        if self._still_steps > _MAX_STILL_STEPS and self._failure is None:
            self._failure = SpinningError(f"{_MAX_STILL_STEPS} turns within a second of virtual time")

    def snapshot(self) -> Mapping[str, str]:
        """Returns each process with its state, for a report."""
        return {process.name: process.exit or process.state.name.lower() for process in self.processes}
