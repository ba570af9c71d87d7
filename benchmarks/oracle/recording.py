"""Which calls a request makes, and which of them need the results of which others.

A flow runs once, in one process. A call depends on the calls whose outputs, or views of them, are its inputs. If its inputs are
the request's own tensors or views of those, it depends only on the request. If the flow computed an input itself, the call
depends on every call whose result had been awaited by then. The *decision* to make a call is not a dependency: the oracle knows
decisions in advance, and so also which part of a tensor a view shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from benchmarks.workloads.base import LoadedProgram, Tensors, Workload

Array: TypeAlias = "np.ndarray[Any, Any]"
_MIN_ITEMS = 16


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a request.

    Attributes:
        program: The program's name.
        needs: The positions of the calls whose outputs it needs, ascending.
        follows: The calls that the flow had awaited when it made this one, for which a scheduler without foresight waits.
    """

    program: str
    needs: tuple[int, ...]
    follows: tuple[int, ...]


Tree: TypeAlias = "tuple[RecordedCall, ...]"
"""The calls of one request in the order in which they were made. Each needs and follows only earlier ones."""


@dataclass(frozen=True)
class Recording:
    """What requests do.

    Attributes:
        trees: For each request, its calls.
        items: For each program, the inputs of its first calls: enough to fill two batches.
    """

    trees: Sequence[Tree]
    items: Mapping[str, Sequence[Tensors]]


def record(workload: Workload, requests: Sequence[Tensors]) -> Recording:
    """Runs requests through a workload's flow, one after another."""
    programs = {name: LoadedProgram(workload, name) for name in workload.programs}
    items: dict[str, list[Tensors]] = {name: [] for name in programs}
    trees: list[Tree] = []
    for request in requests:
        recorder = _Recorder(programs, request)
        asyncio.run(_follow(workload, recorder, request))
        trees.append(tuple(recorder.calls))
        for name, inputs in recorder.made:
            if len(items[name]) < max(_MIN_ITEMS, 2 * workload.programs[name].max_batch_size):
                items[name].append(inputs)
    return Recording(trees, items)


async def _follow(workload: Workload, recorder: _Recorder, request: Tensors) -> None:
    _current_strand()  # the first context, from which those of all later tasks descend
    await workload.flow(recorder.call, request)


@dataclass(eq=False)
class _Strand:
    """What one asyncio task of a flow has awaited: everything that its starter had awaited by then, its own calls, and the calls
    of those tasks it started that have ended."""

    task: asyncio.Task[Any] | None
    awaited: set[int] = field(default_factory=set[int])
    started: list[_Strand] = field(default_factory=list["_Strand"])

    def seen(self) -> set[int]:
        for strand in self.started:
            if strand.task is not None and strand.task.done():
                self.awaited |= strand.seen()
        return self.awaited


_strand: ContextVar[_Strand | None] = ContextVar("strand", default=None)


class _Recorder:
    """Answers the calls of one request."""

    def __init__(self, programs: Mapping[str, LoadedProgram], request: Tensors) -> None:
        self.calls: list[RecordedCall] = []
        self.made: list[tuple[str, Tensors]] = []
        self._programs = programs
        self._request = request
        self._outputs: list[dict[str, Array]] = []
        """Keeps arrays alive, so that no other array takes the place of one of them."""

    async def call(self, program: str, /, **inputs: Array) -> dict[str, Array]:
        strand = _current_strand()
        follows = strand.seen()
        needs = set[int]().union(*(self._needs(np.asarray(array), follows) for array in inputs.values()))
        at = len(self.calls)
        self.calls.append(RecordedCall(program, _reduced(needs, self.calls), _reduced(follows, self.calls)))
        self.made.append((program, inputs))
        outputs = self._programs[program].run_items([inputs])[0]
        # A copy has memory of its own, even if the program returned its input.
        self._outputs.append({name: np.array(array) for name, array in outputs.items()})
        await asyncio.sleep(0)
        strand.awaited.add(at)
        return self._outputs[at]

    def _needs(self, array: Array, follows: set[int]) -> Iterable[int]:
        for at in reversed(range(len(self._outputs))):
            if _has_any(self._outputs[at], array):
                return (at,)
        return () if _has_any(self._request, array) else follows


def _has_any(tensors: Tensors, array: Array) -> bool:
    return any(np.may_share_memory(array, tensor) for tensor in tensors.values())


def _current_strand() -> _Strand:
    task, strand = asyncio.current_task(), _strand.get()
    if strand is None or strand.task is not task:
        inherited = strand.seen().copy() if strand else set[int]()
        own = _Strand(task, inherited)
        if strand is not None:
            strand.started.append(own)
        _strand.set(own)
        return own
    return strand


def _reduced(needs: Iterable[int], calls: Sequence[RecordedCall]) -> tuple[int, ...]:
    """Leaves out calls that others among them need anyway."""
    needs = set(needs)
    implied = set[int]()
    for at in needs:
        waiting = [at]
        while waiting:
            for before in calls[waiting.pop()].needs:
                if before not in implied:
                    implied.add(before)
                    waiting.append(before)
    return tuple(sorted(needs - implied))
