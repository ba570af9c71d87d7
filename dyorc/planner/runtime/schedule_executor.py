"""Executes one rank's schedule: computes, communicates, and releases pieces after their last use."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import torch

from dyorc.errors import PlanError
from dyorc.planner.plan import Region, extents, starts
from dyorc.planner.program.evaluate import prepare_operation
from dyorc.planner.program.graph import locate
from dyorc.planner.runtime.communication_channels import Made, RankChannels
from dyorc.planner.runtime.fused import FusedRun
from dyorc.planner.runtime.links import Links
from dyorc.planner.runtime.pieces import combine_pieces, exchange_pieces, relocate_pieces
from dyorc.planner.runtime.rank_schedule import (
    CollectiveExchange,
    CombinePieces,
    Compute,
    Fused,
    Instruction,
    RankSchedule,
    Relocate,
)
from dyorc.planner.runtime.region_moves import Key, pieces_at
from dyorc.planner.runtime.shared_devices import Pause, sleep_for

if TYPE_CHECKING:
    from dyorc.planner.runtime.media import Media

_LEAST_SLEEP_S = 0.0005

Operation: TypeAlias = Callable[[Mapping[str, torch.Tensor]], tuple[torch.Tensor, ...]]
"""Computes one operation, given the pieces that it reads by the ids of their tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """The device that a rank emulates.

    Attributes:
        slowness: How often it does its work.
        paces_s: How long it takes for the plan's steps that it emulates.
        pause: Waits until so many seconds of computation are done, and returns how many are.
    """

    slowness: float = 1.0
    paces_s: Mapping[int, float] = field(default_factory=dict[int, float])
    pause: Pause = sleep_for


class ScheduleExecutor:
    """Runs a schedule, as often as wanted. Not for several threads.

    Args:
        schedule: What it runs.
        links: To the other ranks.
        channels: Where communication runs.
        emulated: The device.
        reach: Hears the plan's step of each instruction, and may keep it waiting.

    Attributes:
        schedule: What it runs.
        instruction: The number of the instruction that runs, or ran last.
        peak_bytes: The most that pieces took at a time, the given ones included.
        timings: Of the last run: the step of each instruction and its seconds; where it only began a communication, those of
            beginning.
        error: What the first operation of the last run raised that did, if the run was guarded.
    """

    def __init__(
        self,
        schedule: RankSchedule,
        links: Links,
        channels: RankChannels,
        *,
        emulated: Emulated,
        media: "Media | None" = None,
        reach: Callable[[int], None],
    ) -> None:
        self.schedule = schedule
        self._links = links
        self._media = media
        self._channels = channels
        self._emulated = emulated
        self._reach = reach
        self._debt_s = 0.0  # what an emulated device is ahead; short sleeps are put together, long ones are made up for
        self._owed = 0.0  # repetitions of work, of a slow rank
        self._held = _Held(schedule.rank, channels)
        self.instruction = 0
        self.peak_bytes = 0
        self.timings: list[tuple[int, float]] = []
        self.error: Exception | None = None
        self._is_guarded = False
        self._works = tuple(map(self._work_of, schedule.instructions))

    def run(self, pieces: Mapping[Key, torch.Tensor], *, is_guarded: bool = False) -> dict[Key, torch.Tensor]:
        """Runs all instructions on the pieces that this rank begins with, and returns what it holds in the end.

        Args:
            pieces: The pieces at the beginning.
            is_guarded: Whether it goes on after an operation that raised. What it returns is worthless then: see `error`.
        """
        self._held.begin(pieces)
        self._debt_s = 0.0
        self.timings = []
        self.error, self._is_guarded = None, is_guarded
        for number, instruction in enumerate(self.schedule.instructions):
            self.instruction = number
            self._reach(instruction.step)
            began_s = time.perf_counter()
            self._works[number]()
            self.timings.append((instruction.step, time.perf_counter() - began_s))
            self.peak_bytes = max(self.peak_bytes, self._held.num_bytes)
            self._held.release(self.schedule.releases[number])
        made = self._held.end()
        return {key: self._media.own(tensor) for key, tensor in made.items()} if self._media else made

    def _work_of(self, instruction: Instruction) -> Callable[[], None]:
        """Returns what carries out an instruction: found once, and done for each batch."""
        if isinstance(instruction, Compute):
            operation = _operation(instruction, instruction.region)
            inputs = tuple(instruction.inputs.items())
            if self._emulated.paces_s:
                return lambda: self._held.put(self._compute_paced(instruction, operation))
            return lambda: self._held.put(self._compute(instruction, operation, inputs))
        return lambda: self._run(instruction)

    def _run(self, instruction: CombinePieces | CollectiveExchange | Relocate | Fused) -> None:
        match instruction:
            case CombinePieces():
                self._held.put(combine_pieces(instruction, [self._held.get(key) for key in instruction.sources]))
            case Relocate() if instruction.is_local:
                self._held.put(self._relocate(instruction, {key: self._held.get(key) for key in instruction.reads}))
            case CollectiveExchange() | Relocate() | Fused():
                sources = [self._held.later(key) for key in instruction.reads]

                def communicate() -> Made:
                    pieces = {key: later() for key, later in zip(instruction.reads, sources, strict=True)}
                    if isinstance(instruction, Relocate):
                        return self._relocate(instruction, pieces)
                    if isinstance(instruction, Fused):
                        return self._run_kernel(instruction, pieces)
                    return {instruction.target: exchange_pieces(instruction, pieces[instruction.source], self._links)}

                peer = instruction.peer if isinstance(instruction, Relocate) and self._links.takes_threads else None
                self._held.await_later(instruction.makes, self._channels.submit(peer, communicate))

    def _compute_paced(self, instruction: Compute, operation: Operation) -> dict[Key, torch.Tensor]:
        """Computes, and sleeps until the time has passed that the emulated device takes."""
        for key in instruction.inputs.values():
            self._held.get(key)  # waits for what is on its way: a device does not make up for that
        began_s = time.monotonic()
        made = self._compute(instruction, operation, tuple(instruction.inputs.items()))
        if (pace_s := self._emulated.paces_s.get(instruction.step)) is not None:
            self._debt_s += pace_s - (time.monotonic() - began_s)
            if self._debt_s > _LEAST_SLEEP_S:
                self._debt_s -= self._emulated.pause(self._debt_s)
        return made

    def _compute(self, instruction: Compute, operation: Operation, inputs: Sequence[tuple[str, Key]]) -> dict[Key, torch.Tensor]:
        tensors = {name: self._held.get(key) for name, key in inputs}
        return self._compute_repeatedly(instruction, operation, tensors)

    def _part_of_kernel(
        self, instruction: Compute, tensors: Mapping[str, torch.Tensor], region: Region
    ) -> dict[Key, torch.Tensor]:
        """Computes an operation on one chunk."""
        return self._compute_repeatedly(instruction, _operation(instruction, region), tensors)

    def _compute_repeatedly(
        self, instruction: Compute, operation: Operation, tensors: Mapping[str, torch.Tensor]
    ) -> dict[Key, torch.Tensor]:
        """Computes an operation, as often as a slow rank has to."""
        self._owed += self._emulated.slowness
        results: tuple[torch.Tensor, ...] = ()
        while not results or self._owed >= 1:
            results = self._compute_guarded(instruction, operation, tensors)
            self._owed -= 1
        return {key: result for key, result in zip(instruction.outputs, results, strict=True) if key}

    def _compute_guarded(
        self, instruction: Compute, operation: Operation, tensors: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        try:
            return operation(tensors)
        except Exception as error:
            if not self._is_guarded:
                raise
            self.error = self.error or error
            return tuple(self._zeros(key) for key in instruction.outputs)

    def _zeros(self, key: Key | None) -> torch.Tensor:
        if key is None:
            return torch.empty(0)
        plan = self.schedule.plan
        piece = next(p for p in pieces_at(plan, key.tensor) if p.rank == self.schedule.rank and p.key == key)
        dtype = getattr(torch, plan.values[plan.tensors[key.tensor].value].dtype)
        return torch.zeros(extents(piece.region), dtype=dtype, device=self._links.device)

    def _run_kernel(self, instruction: Fused, pieces: Mapping[Key, torch.Tensor]) -> Made:
        run = FusedRun(instruction, pieces, self._links, self._part_of_kernel)
        made = run.run()
        self.peak_bytes = max(self.peak_bytes, self._held.num_bytes + run.temporary_bytes + sum(t.nbytes for t in made.values()))
        return made

    def _relocate(self, instruction: Relocate, pieces: Mapping[Key, torch.Tensor]) -> dict[Key, torch.Tensor]:
        dtype = getattr(torch, self.schedule.plan.values[instruction.value].dtype)

        def empty(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=self._links.device)

        return relocate_pieces(instruction, self.schedule.rank, pieces, empty, self._links, self._media)


def _operation(instruction: Compute, region: Region) -> Operation:
    return prepare_operation(instruction.op, locate(instruction.arguments, starts(region)), instruction.keywords, extents(region))


class _Held:
    """The pieces that a rank holds, and the pieces on their way."""

    def __init__(self, rank: int, channels: RankChannels) -> None:
        self._rank = rank
        self._channels = channels
        self._pieces: dict[Key, torch.Tensor] = {}
        self._coming: dict[Key, Future[Made]] = {}
        self.num_bytes = 0

    def begin(self, pieces: Mapping[Key, torch.Tensor]) -> None:
        self._pieces, self._coming = dict(pieces), {}
        self.num_bytes = sum(tensor.nbytes for tensor in pieces.values())

    def put(self, made: Mapping[Key, torch.Tensor]) -> None:
        for key, tensor in made.items():
            self.num_bytes += tensor.nbytes
            self._pieces[key] = tensor

    def await_later(self, keys: Sequence[Key], done: "Future[Made]") -> None:
        for key in keys:
            self._coming[key] = done

    def get(self, key: Key) -> torch.Tensor:
        if key in self._coming:
            self._take(self._coming[key])
        try:
            return self._pieces[key]
        except KeyError:
            part = f", part {key.part}" if key.part else ""
            raise PlanError(f"rank {self._rank} needs {key.tensor}{part}, and no step has made it") from None

    def later(self, key: Key) -> Callable[[], torch.Tensor]:
        """Returns what gives the piece to a later communication, which waits for it if it comes by another channel."""
        if (done := self._coming.get(key)) is not None:
            return lambda: done.result()[key]
        tensor = self.get(key)
        return lambda: tensor

    def release(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._coming.pop(key, None)
            if (tensor := self._pieces.pop(key, None)) is not None:
                self.num_bytes -= tensor.nbytes

    def end(self) -> dict[Key, torch.Tensor]:
        self._channels.finish()  # raises what any communication raised, waited for or not
        while self._coming:
            self._take(next(iter(self._coming.values())))
        pieces, self._pieces = self._pieces, {}
        return pieces

    def _take(self, done: "Future[Made]") -> None:
        made = self._channels.arrive(done)
        keys = [key for key, other in self._coming.items() if other is done]
        for key in keys:
            del self._coming[key]
        self.put({key: made[key] for key in keys})
