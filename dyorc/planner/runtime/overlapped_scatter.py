"""Makes what a kernel reduces slice by slice, in the order in which the ring needs the slices, while the ring runs.

What is made is never there whole: a rank holds the terms that it has made and the ring has not taken, and waits before it makes
more.

Source: the overlapped product and all-reduce of CoCoNeT (arXiv 2105.05720); there flags in memory tell the ring that a slice is
there, here each hop is submitted when it is.
"""

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future

import torch

from dyorc.planner.plan import Region, extents, narrowed, within
from dyorc.planner.plan.kernels import NUM_TERMS
from dyorc.planner.runtime.communication_channels import CommunicationChannel, Made
from dyorc.planner.runtime.kernel_chunks import Chunks, Computing
from dyorc.planner.runtime.links import Links
from dyorc.planner.runtime.rank_collectives import RingSum
from dyorc.planner.runtime.rank_schedule import Fused
from dyorc.planner.runtime.region_moves import Key


class OverlappedScatter:
    """One kernel's terms and sums on one rank.

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
        """Makes the terms of a chunk one after another, and has the ring take each."""
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
                instruction, tensors, narrowed(instruction.region, cuts[instruction.makes[0]], cut.start, cut.stop)
            )
        return made[scatter.source]
