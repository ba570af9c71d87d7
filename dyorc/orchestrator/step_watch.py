"""Watches how long users' workflow code runs on the event loop, where it holds up all other requests.

A step of a workflow should take microseconds: it only says what to call next. One that computes, sleeps or never returns would
stop all requests. So each step is measured; a slow one is logged with its place, and one that takes too long is interrupted
with an exception, which a separate thread raises in the loop's thread.

That exception arrives at the next line of Python: code inside a C function is interrupted when that returns. It is sent only
while the user's own code is running, so that the engine's state stays consistent.

    loop:   begin ......... user's code ......... end
    thread:         sees the step, samples its place, interrupts it
"""

import asyncio
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Self

import structlog

from dyorc.engine.model.journal import StepInterrupted
from dyorc.system.switch_interval import switch_interval_at_least

_log = structlog.get_logger("dyorc.orchestrator")
_OWN = str(Path(__file__).parents[1])
"""DyOrc's own code is in this folder."""
_LOOPS = os.path.dirname(asyncio.__file__) + os.sep
"""Event loops that are written in C are run by Python's, too."""
_PYTHON = os.path.dirname(os.__file__) + os.sep
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_IDLE_POLLS = 10
"""The thread sleeps this many times longer while no steps are taken."""
_UNDISTURBED_S = 0.002
"""The interpreter is kept this long between the look at a step's place and its interruption: the step must not go on meanwhile. A
thread that has asked for the interpreter before gets it at the next call; one that asks later waits longer than this takes."""
_UNSEEN = "unknown: it was over before the watch could look"
"""The watch sleeps while nothing happens, and cannot look while code in C keeps the interpreter, or the machine is too busy."""
_QUIET_NS = 10_000_000_000
"""After a warning about a place, this long without another about the same place."""


class StepWatch:
    """Measures the steps of one event loop's workflows. Enter it in the loop's thread.

    Args:
        warn_after_s: A step that takes longer is logged; infinity: none is.
        limit_s: A step that takes longer is interrupted.

    Attributes:
        num_interrupted: How many steps were interrupted.
    """

    def __init__(self, warn_after_s: float, limit_s: float) -> None:
        self._warn_ns = warn_after_s * 1e9
        self._limit_ns = limit_s * 1e9
        self.num_interrupted = 0
        self._limit_s = limit_s
        self._interval_s = min(warn_after_s, limit_s) / 2
        self._thread = threading.Thread(target=self._watch, name="dyorc-step-watch", daemon=True)
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._workflow = ""
        self._program = self._place_program = ""
        self._started_ns = 0
        """When the running step began; 0 between steps."""
        self._num_steps = 0
        self._place = ""
        self._has_fired = False
        self._warned_ns: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._thread_id = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over.set()
        self._thread.join()

    # The loop's side

    @property
    def is_measuring(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._started_ns > 0

    def begin(self, workflow: str) -> None:
        """Notes that a step of a workflow begins."""
        self._workflow = workflow
        self._place = ""
        self._program = self._place_program = ""
        self._num_steps += 1
        self._started_ns = time.perf_counter_ns()

    def charge(self, program: str) -> None:
        """Notes whose code runs within the step: the cost of a call of this program; empty: the workflow's own again."""
        self._program = program

    def end(self) -> None:
        """Notes that the step has ended by itself."""
        took_ns = time.perf_counter_ns() - self._started_ns
        self._started_ns = 0
        if self._has_fired:
            self._disarm()
        if took_ns > self._warn_ns:
            self._warn(took_ns)

    def abort(self) -> str:
        """Notes that the step was interrupted. Returns the text of the error."""
        self.num_interrupted += 1
        self._started_ns = 0
        self._disarm()
        return (
            f"workflow {self._workflow!r} {self.interruption()}: it awaited nothing, and all requests wait while a workflow "
            f"computes or sleeps, so do such work in a program"
        )

    def interruption(self) -> str:
        """Returns how the last step was interrupted: after how long, and where."""
        where = f" ({self._place})" if self._place else ""
        return f"ran for more than {self._limit_s:g} s{where} and was interrupted"

    def forget(self) -> None:
        """Notes that the engine failed in the middle of a step."""
        self._started_ns = 0
        self._disarm()

    def _disarm(self) -> None:
        """Takes the exception back, in case it is still on its way."""
        with self._lock:
            if self._has_fired:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread_id), None)
                self._has_fired = False

    def _warn(self, took_ns: int) -> None:
        place, now_ns = self._place or self._workflow, time.perf_counter_ns()
        if now_ns - self._warned_ns.get(place, -_QUIET_NS) < _QUIET_NS:
            return
        if len(self._warned_ns) > 1000:
            self._warned_ns.clear()
        self._warned_ns[place] = now_ns
        program = {"program": self._place_program} if self._place_program else {}
        place, took_s = self._place or _UNSEEN, round(took_ns / 1e9, 3)
        _log.warning("slow_step", workflow=self._workflow, **program, place=place, took_s=took_s)

    # The thread's side

    def _watch(self) -> None:
        num_seen = 0
        interval_s = self._interval_s
        while not self._is_over.wait(interval_s):
            started_ns, num_steps = self._started_ns, self._num_steps
            if started_ns:
                self._look(started_ns)
            is_idle = not started_ns and num_steps == num_seen
            interval_s = self._interval_s * (_IDLE_POLLS if is_idle else 1)
            num_seen = num_steps

    def _look(self, started_ns: int) -> None:
        took_ns = time.perf_counter_ns() - started_ns
        if took_ns < min(self._warn_ns, self._limit_ns):
            return
        place, is_theirs = self._place_now()
        if self._started_ns != started_ns:
            return
        if place:
            self._place, self._place_program = place, self._program
        if took_ns < self._limit_ns or not is_theirs:
            return
        with self._lock, switch_interval_at_least(_UNDISTURBED_S):
            # From now on `end` waits for the lock, so the exception cannot reach another step. A step that still runs at the next
            # look is interrupted again: the garbage collector's callbacks, and finalizers, swallow an exception that meets them.
            was_fired, self._has_fired = self._has_fired, True
            if self._place_now()[1] and self._started_ns == started_ns:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread_id), ctypes.py_object(StepInterrupted))
            else:
                self._has_fired = was_fired

    def _place_now(self) -> tuple[str, bool]:
        """Returns the place in the user's code, empty if there is none, and whether that code is what runs: not our own, and no
        library that ours has called."""
        innermost: FrameType | None = sys._current_frames().get(self._thread_id)  # pyright: ignore[reportPrivateUsage] (there is no other way)
        for number, frames in enumerate(_runs_of_others(innermost)):
            if (users := _users_frame(frames)) is not None:
                return f"{users.f_code.co_filename}:{users.f_lineno} in {users.f_code.co_name}", number == 0
        return "", False


def _runs_of_others(frame: FrameType | None) -> Iterator[list[FrameType]]:
    """Yields the frames from the innermost one to those of the event loop that are not ours: the first ones, maybe none, and then
    each group that our own code has called and that has called our own, from the inside to the outside."""
    frames: list[FrameType] = []
    is_first = True
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_LOOPS):
            break
        if not name.startswith(_OWN):
            frames.append(frame)
        elif frames or is_first:
            yield frames
            frames, is_first = [], False
        frame = frame.f_back
    if is_first:  # frames that our code has not called are of who runs the event loop
        yield frames


def _users_frame(frames: Sequence[FrameType]) -> FrameType | None:
    """Returns the outermost frame of the user's code, or else of a package: the line of the workflow, whatever that calls. None
    if all are of Python itself, which our own code calls, too."""
    others = [frame for frame in frames if not _is_of_python(frame.f_code.co_filename)]
    own = [frame for frame in others if _PACKAGES.isdisjoint(frame.f_code.co_filename.split(os.sep))]
    return next(reversed([*others, *own]), None)


def _is_of_python(name: str) -> bool:
    return name.startswith("<frozen ") or (name.startswith(_PYTHON) and _PACKAGES.isdisjoint(name.split(os.sep)))
