"""Keeps the async generators of users' workflows from the event loop.

Python hands each async generator to the loop that runs where it is first iterated, and the loop closes it with a task when it is
collected. A generator of a workflow is stepped by the engine, and awaits what no task can await: closed by a task, it logs errors
that look like ours. So while the engine takes its turn, generators that begin are the run's: they are closed at once when they
are collected, as those of a run that ends are. The hooks stay in place between turns, since to change them costs as much as
a step of a workflow.
"""

import sys
import weakref
from collections.abc import AsyncGenerator
from typing import Any, Self

from dyorc.authoring.context import current_recorder
from dyorc.engine.tasks.generators import close_generator

_MIN_SWEEP = 1000
"""Generators that are remembered before the ended ones are looked for."""


class GeneratorHooks:
    """Python's hooks for async generators, on the thread of one event loop. Enter it where the loop runs.

    Attributes:
        is_in_turn: Whether the engine takes its turn: set it around each.
    """

    def __init__(self) -> None:
        self.is_in_turn = False
        self._runs: dict[int, tuple[weakref.ref[Any], int]] = {}
        """Generators that began in a turn, by `id`, and the `id` of the run that was stepped. Their finalizer is called when no
        weak reference finds them."""
        self._sweep_at = _MIN_SWEEP

    def __enter__(self) -> Self:
        self._before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._begin, self._finalize)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if sys.get_asyncgen_hooks().firstiter == self._begin:  # else others have been set since, which may pass on to these
            sys.set_asyncgen_hooks(*self._before)

    def _begin(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self.is_in_turn:
            self._runs[id(generator)] = weakref.ref(generator), id(current_recorder.get())
            if len(self._runs) >= self._sweep_at:
                self._runs = {key: run for key, run in self._runs.items() if run[0]() is not None}
                self._sweep_at = max(_MIN_SWEEP, 2 * len(self._runs))
            return
        if self._runs:
            self._runs.pop(id(generator), None)  # of one that has ended, in whose place this one is
        if self._before.firstiter is not None:
            self._before.firstiter(generator)

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        run = self._runs.pop(id(generator), None)
        if run is None and self._before.finalizer is not None:
            self._before.finalizer(generator)
            return
        recorder = current_recorder.get()
        if run is None or recorder is None or id(recorder) == run[1]:
            close_generator(generator)
            return
        token = current_recorder.set(None)  # the garbage collector met it amid another run, which must not record its calls
        try:
            close_generator(generator)
        finally:
            current_recorder.reset(token)
