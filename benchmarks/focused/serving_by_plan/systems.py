"""The ways to answer batches by MiniLM that are compared."""

import multiprocessing
import time
from collections.abc import Mapping
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch

import dyorc
from dyorc.authoring.loading import import_place
from dyorc.planner.plan import Plan, extents
from dyorc.planner.program import ValueKind
from dyorc.planner.program.graph import type_sizes
from dyorc.planner.runtime import RankOptions, Ranks
from dyorc.planner.runtime.region_moves import pieces_at

_MODEL = "examples/router/router_bert.py"
_NUM_IN_FLIGHT = 3
"""Batches that a group has at a time when it is to answer many: more than it has ranks."""


class System(Protocol):
    """Answers batches."""

    def answer(self, tokens: torch.Tensor) -> torch.Tensor:
        """Answers one batch."""
        ...

    def batches_per_s(self, tokens: torch.Tensor, duration_s: float) -> float:
        """Answers one batch again and again, and returns how often in a second."""
        ...

    def close(self) -> None:
        """Ends its processes."""
        ...


@cache
def model() -> ModuleType:
    """Returns the module that holds MiniLM."""
    return import_place(_MODEL)


class OneProcess:
    """Loads the model as any program does, and computes with some threads."""

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._net: Any = dyorc.load_module(model().Bert, model().WEIGHTS)

    def answer(self, tokens: torch.Tensor) -> torch.Tensor:
        """Answers one batch."""
        torch.set_num_threads(self._num_threads)
        with torch.inference_mode():
            return self._net(tokens)

    def batches_per_s(self, tokens: torch.Tensor, duration_s: float) -> float:
        """Answers one batch again and again."""
        count, began_s = 0, time.perf_counter()
        while (now_s := time.perf_counter()) < began_s + duration_s:
            self.answer(tokens)
            count += 1
        return count / (now_s - began_s)

    def close(self) -> None:
        """There is nothing to end."""


class Replicas:
    """Two processes that share nothing but the weights' pages."""

    def __init__(self, num_replicas: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: list[Any] = []
        self._processes: list[Any] = []
        for _ in range(num_replicas):
            end, other = context.Pipe()
            process = context.Process(target=_replica, args=(other,), daemon=True)
            process.start()
            other.close()
            self._ends.append(end)
            self._processes.append(process)

    def answer(self, tokens: torch.Tensor) -> torch.Tensor:
        """Answers one batch: on the first."""
        self._ends[0].send((tokens.tolist(), 0.0))
        return torch.tensor(self._ends[0].recv())

    def batches_per_s(self, tokens: torch.Tensor, duration_s: float) -> float:
        """Has each answer the batch again and again."""
        for end in self._ends:
            end.send((tokens.tolist(), duration_s))
        return sum(end.recv() for end in self._ends)

    def close(self) -> None:
        """Ends them."""
        for end, process in zip(self._ends, self._processes, strict=True):
            end.close()
            process.join()


def _replica(end: Connection) -> None:
    system = OneProcess(1)
    while True:
        try:
            rows, duration_s = end.recv()
        except EOFError:
            return
        tokens = torch.tensor(rows)
        end.send(system.batches_per_s(tokens, duration_s) if duration_s else system.answer(tokens).tolist())


class Group:
    """The ranks of a plan, each with one thread, as a replica's group runs them."""

    def __init__(self, plan: Plan) -> None:
        assert plan.inference is not None
        self._names = plan.inference.inputs, plan.inference.outputs
        self._ranks = Ranks(RankOptions(num_ranks=plan.num_ranks, device="cpu"))
        self._ranks.start()
        self._ranks.load(plan, {}, weights=Path(model().WEIGHTS))

    def _begin(self, tokens: torch.Tensor) -> None:
        self._ranks.begin_step(self._inputs(tokens), num_samples=len(tokens), is_guarded=True)

    def _inputs(self, tokens: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return {self._names[0][0]: tokens}

    def answer(self, tokens: torch.Tensor) -> torch.Tensor:
        """Answers one batch."""
        self._begin(tokens)
        return self._ranks.end_step().results[self._names[1][0]]

    def batches_per_s(self, tokens: torch.Tensor, duration_s: float) -> float:
        """Answers one batch again and again: while one rank of a pipeline works on it, others work on those before and after."""
        count, began_s = 0, time.perf_counter()
        for _ in range(_NUM_IN_FLIGHT):
            self._begin(tokens)
        while time.perf_counter() < began_s + duration_s:
            self._ranks.end_step()
            self._begin(tokens)
            count += 1
        for _ in range(_NUM_IN_FLIGHT):
            self._ranks.end_step()
            count += 1
        return count / (time.perf_counter() - began_s)

    def close(self) -> None:
        """Ends the ranks."""
        self._ranks.stop()


def weights_bytes(plan: Plan) -> list[int]:
    """Returns what each rank holds of the weights."""
    num_bytes = [0] * plan.num_ranks
    for name, tensors in plan.sources.items():
        if plan.values[name].kind is not ValueKind.INPUT:
            for tensor in tensors:
                for piece in pieces_at(plan, tensor):
                    num_bytes[piece.rank] += torch.Size(extents(piece.region)).numel() * type_sizes[plan.values[name].dtype]
    return num_bytes
