"""Collectives on pieces of different sizes, zero included, in each algorithm that a plan may ask for.

    padded     every shard is filled up to the largest, and one collective of torch moves all
    grouped    one broadcast or reduction for each shard, of that shard's size
    ring       our own rings over sends and receives, of each shard's own size

gloo's own reduce_scatter is one all_reduce for each rank, so it is never used: padded shards go through all_to_all, and each rank
adds what it gets. Two ranks on CPUs send each other what they have instead: one round, where gloo's all_reduce takes several, and
a third of the time for what a layer of a small model moves. Over shaped links all goes by sends and receives, since only these
are shaped; what would be one collective is the ring that gloo runs then, with the padding.

Shards are flat here: `pieces.py` cuts regions out and puts them together.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from dyorc.planner.plan import Algorithm
from dyorc.planner.runtime.links import Links, as_bytes, lost_links


class Collectives:
    """The collectives of one line of ranks."""

    def __init__(self, links: Links, ranks: tuple[int, ...], index: int, algorithm: Algorithm) -> None:
        self._links = links
        self._ranks = ranks
        self._index = index
        self._algorithm = algorithm
        self._is_pair = len(ranks) == 2 and links.device.type == "cpu" and not links.is_shaped
        self._is_native = algorithm is not Algorithm.RING and not links.is_shaped and not self._is_pair
        self._order = sorted(range(len(ranks)), key=lambda at: ranks[at])  # torch sorts the ranks of a group

    def all_reduce(self, own: torch.Tensor) -> torch.Tensor:
        """Returns the sum of the tensors that all ranks give, which have one shape."""
        if self._is_native:
            total = own.clone()
            with lost_links():
                dist.all_reduce(total, group=self._group)
            return total
        if self._is_pair and self._algorithm is not Algorithm.RING:
            other = torch.empty_like(own)
            self._links.exchange([(self._ranks[1 - self._index], own)], [(self._ranks[1 - self._index], other)])
            return other.add_(own)
        sizes = [len(part) for part in torch.tensor_split(own, len(self._ranks))]
        return torch.cat(self._ring_gather(self._ring_sum(list(own.split(sizes))), sizes))

    def all_gather(self, own: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
        """Returns the shards of all ranks.

        Args:
            own: This rank's.
            sizes: The elements of each.
        """
        match self._algorithm:
            case Algorithm.PADDED:
                longest = max(sizes)
                padded = _padded(own, longest)
                if self._is_native:
                    shards = [own.new_empty(longest) for _ in sizes]
                    with lost_links():
                        dist.all_gather([as_bytes(shards[at]) for at in self._order], as_bytes(padded), group=self._group)
                else:
                    shards = self._ring_gather(padded, [longest] * len(sizes))
                return [shard[:size] for shard, size in zip(shards, sizes, strict=True)]
            case Algorithm.GROUPED:
                return self._grouped_gather(own, sizes)
            case Algorithm.RING:
                return self._ring_gather(own, sizes)

    def reduce_scatter(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the sum of what all ranks give as this rank's shard.

        Args:
            shards: What this rank gives for each; those for one rank have one size.
        """
        match self._algorithm:
            case Algorithm.PADDED:
                longest = max(len(shard) for shard in shards)
                padded = [_padded(shard, longest) for shard in shards]
                total = self._add(padded) if self._is_native else self._ring_sum(padded)
                return total[: len(shards[self._index])]
            case Algorithm.GROUPED:
                return self._grouped_sum(shards)
            case Algorithm.RING:
                return self._ring_sum(shards)

    def all_to_all(self, blocks: Sequence[torch.Tensor], sizes: Sequence[int], largest: int) -> list[torch.Tensor]:
        """Returns what each rank has for this one.

        Args:
            blocks: What this rank has for each.
            sizes: The elements of what comes.
            largest: The elements of the largest block of any pair of ranks.
        """
        if self._algorithm is Algorithm.PADDED:
            blocks_received = self._swap([_padded(block, largest) for block in blocks], [largest] * len(sizes))
            return [block[:size] for block, size in zip(blocks_received, sizes, strict=True)]
        return self._swap(blocks, sizes)

    def _swap(self, blocks: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        if not self._is_native:
            return self._pairwise(blocks, sizes)
        width = blocks[0].element_size()
        in_order = [sizes[at] for at in self._order]
        outgoing, incoming = torch.cat([blocks[at] for at in self._order]), blocks[0].new_empty(sum(sizes))
        with lost_links():
            dist.all_to_all_single(
                as_bytes(incoming),
                as_bytes(outgoing),
                [size * width for size in in_order],
                [len(blocks[at]) * width for at in self._order],
                group=self._group,
            )
        received = dict(zip(self._order, incoming.split(in_order), strict=True))
        return [received[at] for at in range(len(sizes))]

    def _pairwise(self, blocks: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        """Rank after rank, each sends to the one that many steps on and receives from the one that many steps back."""
        received = [block.new_empty(size) for block, size in zip(blocks, sizes, strict=True)]
        received[self._index] = blocks[self._index]
        for step in range(1, len(self._ranks)):
            to, back = self._at(step), self._at(-step)
            self._links.exchange([(self._ranks[to], blocks[to].contiguous())], [(self._ranks[back], received[back])])
        return received

    def _add(self, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
        """Adds up what others have for this rank; all blocks have one size."""
        if self._links.device.type == "cuda":
            total = torch.empty_like(blocks[0])
            with lost_links():
                dist.reduce_scatter(total, [blocks[at] for at in self._order], group=self._group)
            return total
        return torch.stack(self._swap(blocks, [len(block) for block in blocks])).sum(0)

    def _grouped_gather(self, own: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
        shards = [own.new_empty(size) for size in sizes]
        shards[self._index] = own.contiguous()
        if not self._is_native:
            others = [(rank, i) for i, rank in enumerate(self._ranks) if i != self._index]
            self._links.exchange([(rank, shards[self._index]) for rank, _ in others], [(rank, shards[i]) for rank, i in others])
            return shards
        with lost_links():
            works = [
                dist.broadcast(as_bytes(shard), rank, group=self._group, async_op=True)
                for rank, shard in zip(self._ranks, shards, strict=True)
                if len(shard)
            ]
            _wait(works)
        return shards

    def _grouped_sum(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        own = shards[self._index]
        if not self._is_native:
            terms = [torch.empty_like(own) for _ in shards]
            terms[self._index] = own
            others = [(rank, i) for i, rank in enumerate(self._ranks) if i != self._index]
            self._links.exchange([(rank, shards[i].contiguous()) for rank, i in others], [(rank, terms[i]) for rank, i in others])
            return torch.stack(terms).sum(0)
        totals = [shard.clone() for shard in shards]
        with lost_links():
            works = [
                dist.reduce(total, rank, group=self._group, async_op=True)
                for rank, total in zip(self._ranks, totals, strict=True)
                if len(total)
            ]
            _wait(works)
        return totals[self._index]

    def _ring_gather(self, own: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
        """Each passes on to its right what came last from its left, its own shard first."""
        shards = [own.new_empty(size) for size in sizes]
        shards[self._index] = own.contiguous()
        right, left = self._ranks[self._at(1)], self._ranks[self._at(-1)]
        for step in range(len(self._ranks) - 1):
            self._links.exchange([(right, shards[self._at(-step)])], [(left, shards[self._at(-step - 1)])])
        return shards

    def _ring_sum(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        ring = RingSum(self._links, self._ranks, self._index)
        passing = shards[self._at(-1)]
        for step in range(len(self._ranks)):
            passing = ring.hop(shards[self._at(-step - 1)], len(shards[self._at(-step - 2)]))
        return passing

    @property
    def _group(self) -> Any:
        return self._links.group(self._ranks)

    def _at(self, offset: int) -> int:
        return (self._index + offset) % len(self._ranks)


class RingSum:
    """One sum for each rank. Each goes once round the ring, ends where it is wanted, and grows by what each rank gives.

    For callers that compute their terms while the ring runs: first for the rank before their own, then for the one before that,
    and last for themselves.
    """

    def __init__(self, links: Links, ranks: tuple[int, ...], index: int) -> None:
        self._links = links
        self._right, self._left = ranks[(index + 1) % len(ranks)], ranks[index - 1]
        self._num_left = len(ranks)
        self._arrived: torch.Tensor | None = None

    def hop(self, own: torch.Tensor, num_next: int) -> torch.Tensor:
        """Adds what this rank gives to the sum that has come, and hands it on, if it is not this rank's own.

        Args:
            own: What it gives, flat.
            num_next: How many elements the next sum has.

        Returns:
            The sum so far, whole at the last hop.
        """
        passing = own.contiguous() if self._arrived is None else self._arrived.add_(own)
        self._num_left -= 1
        if self._num_left:
            self._arrived = passing.new_empty(num_next)
            self._links.exchange([(self._right, passing)], [(self._left, self._arrived)])
        return passing


def _padded(shard: torch.Tensor, size: int) -> torch.Tensor:
    if len(shard) == size:
        return shard.contiguous()
    return torch.cat([shard, shard.new_zeros(size - len(shard))])


def _wait(works: Sequence[dist.Work | None]) -> None:
    for work in works:
        if work is not None:
            work.wait()
