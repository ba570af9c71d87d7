"""Carries out a kernel: while one chunk of the slices is computed, others are on their way round the ring.

All ranks communicate in this order: scatter 0, scatter 1, gather 0, scatter 2, gather 1, ... Where the kernel makes what it
reduces, that goes on while the ring runs (`OverlappedScatter`). Each element is added in the order in which it is without the
kernel, so that with our own rings the results are the same to the bit.

Source: the fused all-reduce of CoCoNeT (arXiv 2105.05720, section 5); here, chunks are a loop of Python's, not one launch. There
flags in memory tell the ring that a slice is there; here each hop is submitted when it is.
"""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from dyorc.planner.plan import Region, extents, narrow, within
from dyorc.planner.plan.kernels import NUM_TERMS
from dyorc.planner.runtime.communication_channels import CommunicationChannel, Made, ThreadChannel
from dyorc.planner.runtime.links import Links
from dyorc.planner.runtime.rank_collectives import Collectives, RingSum
from dyorc.planner.runtime.rank_schedule import CollectiveExchange, Compute, Fused
from dyorc.planner.runtime.region_moves import Key

Computing: TypeAlias = Callable[[Compute, Mapping[str, torch.Tensor], Region], dict[Key, torch.Tensor]]
"""Computes an operation on given tensors; the last argument is the region of its output."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Cuts slices into chunks.

    Attributes:
        num: How many.
        dim: The dimension of the reduced value along which its slices are cut, and their chunks.
    """

    num: int
    dim: int

    def region(self, region: Region, number: int) -> Region:
        """A chunk of a slice, given the region of the slice."""
        return self.part(region, self.dim, number)

    def part(self, region: Region, dim: int, number: int) -> Region:
        """A chunk of a tensor that is cut along another dimension."""
        low, high = region[dim]
        return narrow(region, dim, *self.bounds(high - low, number))

    def bounds(self, extent: int, number: int) -> tuple[int, int]:
        """Where a chunk begins and ends in a slice."""
        return extent * number // self.num, extent * (number + 1) // self.num


class OverlappedScatter:
    """One kernel's terms and sums on one rank. It makes slices in the order in which the ring needs them.

    What is made is never there whole: a rank holds the terms that it has made and the ring has not taken, and waits before it
    makes more.

    Attributes:
        temporary_bytes: Of the terms that are there at most at a time.
    """

    def __init__(
        self,
        kernel: Fused,
        chunks: Chunks,
        pieces: Mapping[Key, torch.Tensor],
        way: tuple[Links, CommunicationChannel],
        compute: Computing,
    ) -> None:
        self._kernel = kernel
        self._chunks = chunks
        self._pieces = pieces
        self._links, self._channel = way
        self._compute = compute
        self._taken: deque[Future[Made]] = deque()
        self.temporary_bytes = 0

    def begin(self, number: int) -> "Future[Made]":
        """Makes the terms of a chunk one after another, and hands each to the ring."""
        scatter, num = self._kernel.scatter, len(self._kernel.order)
        regions = [self._chunks.region(region, number) for region in scatter.after]
        in_order = [regions[(scatter.index + offset) % num] for offset in self._kernel.order]
        ring = RingSum(self._links, scatter.ranks, scatter.index)
        for region, after in zip(in_order, (*in_order[1:], in_order[-1]), strict=True):
            while len(self._taken) >= NUM_TERMS:
                self._channel.arrive(self._taken.popleft())
            self._taken.append(self._hop(ring, self._term(region), region, after))
        return self._taken[-1]

    def _hop(self, ring: RingSum, term: torch.Tensor, region: Region, after: Region) -> "Future[Made]":
        flat, num_next = term.contiguous().view(-1), torch.Size(extents(after)).numel()
        self.temporary_bytes = max(self.temporary_bytes, NUM_TERMS * flat.nbytes)
        return self._channel.submit(lambda: {self._kernel.scatter.target: ring.hop(flat, num_next).view(extents(region))})

    def _term(self, region: Region) -> torch.Tensor:
        """Computes this rank's term of a part of what is reduced."""
        scatter, cuts = self._kernel.scatter, self._kernel.cuts
        cut = within(region, scatter.before[scatter.index])[self._chunks.dim]
        made: dict[Key, torch.Tensor] = {}
        for instruction in self._kernel.products:
            tensors: dict[str, torch.Tensor] = {}
            for name, key in instruction.inputs.items():
                if key in made:
                    tensors[name] = made[key]
                else:
                    whole = self._pieces[key]
                    tensors[name] = whole.narrow(cuts[key], cut.start, cut.stop - cut.start) if key in cuts else whole
            made |= self._compute(
                instruction, tensors, narrow(instruction.region, cuts[instruction.makes[0]], cut.start, cut.stop)
            )
        return made[scatter.source]


class Scatter(Protocol):
    """Reduces what a kernel begins with, chunk by chunk.

    Attributes:
        temporary_bytes: What it made at most at a time, besides the sums.
    """

    temporary_bytes: int

    def begin(self, number: int) -> "Future[Made]":
        """Starts the reduction of a chunk, after the earlier chunks."""
        ...


class FusedRun:
    """One run of a kernel on one rank.

    Attributes:
        temporary_bytes: What one chunk needed at most, besides what the kernel makes.
    """

    def __init__(self, kernel: Fused, pieces: Mapping[Key, torch.Tensor], links: Links, compute: Computing) -> None:
        self._kernel = kernel
        self._pieces = pieces
        self._links = links
        self._compute = compute
        self._chunks = Chunks(kernel.num_chunks, kernel.dims[kernel.scatter.target])
        self._made: dict[Key, torch.Tensor] = {}
        self._last_reads = _last_reads(kernel)
        self.temporary_bytes = 0

    def run(self) -> Made:
        """Runs the kernel, and returns what it makes."""
        channel, num = ThreadChannel(self._links.device), self._kernel.num_chunks
        last: Future[Made] | None = None
        try:
            scatter = self._scatter(channel)
            coming = [scatter.begin(0)]
            for number in range(num):
                if number + 1 < num:
                    coming.append(scatter.begin(number + 1))
                slices = self._compute_chunk(number, dict(channel.arrive(coming.pop(0))))
                last = channel.submit(self._gathering(number, slices))
            if last is not None:
                channel.arrive(last)
            self.temporary_bytes += scatter.temporary_bytes
        finally:
            channel.close()
        return self._made

    def _scatter(self, channel: CommunicationChannel) -> Scatter:
        if self._kernel.products:
            return OverlappedScatter(self._kernel, self._chunks, self._pieces, (self._links, channel), self._compute)
        return _PlainScatter(self._kernel, self._chunks, self._pieces, self._links, channel)

    def _compute_chunk(self, number: int, slices: dict[Key, torch.Tensor]) -> dict[Key, torch.Tensor]:
        """Computes one chunk of everything, and releases what nothing reads afterwards."""
        for index, instruction in enumerate(self._kernel.computes):
            tensors = {
                name: slices[key] if key in slices else self._part(key, number) for name, key in instruction.inputs.items()
            }
            first = next(key for key in instruction.outputs if key)
            slices |= self._compute(instruction, tensors, self._chunks.part(instruction.region, self._kernel.dims[first], number))
            self.temporary_bytes = max(self.temporary_bytes, sum(tensor.nbytes for tensor in slices.values()))
            for key in self._last_reads[index]:
                slices.pop(key, None)
        for key in self._kernel.kept:
            self._put(key, slices[key], number)
        return slices

    def _gathering(self, number: int, slices: Mapping[Key, torch.Tensor]) -> Callable[[], Made]:
        def gather() -> Made:
            for exchange in self._kernel.gathers:
                self._gather(exchange, number, slices[exchange.source])
            return {}

        return gather

    def _gather(self, exchange: CollectiveExchange, number: int, own: torch.Tensor) -> None:
        regions = [self._chunks.region(region, number) for region in exchange.before]
        line = Collectives(self._links, exchange.ranks, exchange.index, exchange.algorithm)
        sizes = [torch.Size(extents(region)).numel() for region in regions]
        whole = exchange.after[exchange.index]
        if exchange.target not in self._made:
            self._made[exchange.target] = own.new_empty(extents(whole))
        target = self._made[exchange.target]
        for region, flat in zip(regions, line.all_gather(own.contiguous().view(-1), sizes), strict=True):
            target[within(region, whole)] = flat.view(extents(region))

    def _part(self, key: Key, number: int) -> torch.Tensor:
        """A chunk of a slice from outside; all of what is no slice."""
        piece = self._pieces[key]
        if key not in self._kernel.dims:
            return piece
        dim = self._kernel.dims[key]
        start, stop = self._chunks.bounds(piece.shape[dim], number)
        return piece.narrow(dim, start, stop - start)

    def _put(self, key: Key, chunk: torch.Tensor, number: int) -> None:
        """Puts a chunk into a slice that is wanted whole."""
        dim = self._kernel.dims[key]
        shape = list(chunk.shape)
        region = self._kernel.scatter.after[self._kernel.scatter.index][self._kernel.dims[self._kernel.scatter.target]]
        shape[dim] = region[1] - region[0]
        start, stop = self._chunks.bounds(shape[dim], number)
        if key not in self._made:
            self._made[key] = chunk.new_empty(shape)
        self._made[key].narrow(dim, start, stop - start).copy_(chunk)


class _PlainScatter:
    """Reduces what is there whole."""

    def __init__(
        self, kernel: Fused, chunks: Chunks, pieces: Mapping[Key, torch.Tensor], links: Links, channel: CommunicationChannel
    ) -> None:
        self._scatter = kernel.scatter
        self._chunks = chunks
        self._whole = pieces[kernel.scatter.source]
        self._line = Collectives(links, kernel.scatter.ranks, kernel.scatter.index, kernel.scatter.algorithm)
        self._channel = channel
        self.temporary_bytes = 0

    def begin(self, number: int) -> "Future[Made]":
        return self._channel.submit(lambda: self._reduce(number))

    def _reduce(self, number: int) -> Made:
        scatter = self._scatter
        outer, regions = scatter.before[scatter.index], [self._chunks.region(region, number) for region in scatter.after]
        total = self._line.reduce_scatter([self._whole[within(region, outer)].contiguous().view(-1) for region in regions])
        return {scatter.target: total.view(extents(regions[scatter.index]))}


def _last_reads(kernel: Fused) -> list[list[Key]]:
    """For each operation, the slices that nothing reads after it."""
    wanted = {*kernel.kept, *(gather.source for gather in kernel.gathers)}
    last = {
        key: index
        for index, instruction in enumerate(kernel.computes)
        for key in (*instruction.makes, *instruction.reads)
        if key not in wanted
    }
    return [[key for key, at in last.items() if at == index] for index in range(len(kernel.computes))]
