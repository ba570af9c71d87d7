"""Where the tensors of a world lie, and what their holders have lost. Each block is released once, and read only before that."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from dyorc.core.arrays import Array, apply_views, inline
from dyorc.core.tensor import BlockId, DType, TensorRef, blocks_of
from dyorc.replica.resident_table import ResidentRows


class TensorStore:
    """The blocks of all holders.

    Args:
        is_storing: Keep every tensor aside in a block of its own; else a tensor carries its data.

    Attributes:
        stored: The rows of each block, by their offsets.
        released: Blocks that the engine has released.
        vanished: Blocks that their holder has lost, though it is there.
        gone: Blocks of replicas that are gone.
        nodes: The node of each replica that ever joined.
        process_of: Under which name each replica holds residents.
        replica_ids: The replicas that are there.
    """

    def __init__(self, *, is_storing: bool) -> None:
        self._is_storing = is_storing
        self.stored: dict[BlockId, dict[int, Array]] = {}
        self.released: set[BlockId] = set()
        self.vanished: set[BlockId] = set()
        self.gone: set[BlockId] = set()
        self.nodes: dict[str, str] = {}
        self.process_of: dict[str, str] = {}
        self.replica_ids: set[str] = set()
        self._num_blocks = 0
        self._inputs: dict[BlockId, dict[int, Array]] = {}

    def join(self, replica_id: str, node: str, process: str) -> None:
        """Adds a replica."""
        self.replica_ids.add(replica_id)
        self.nodes[replica_id] = node
        self.process_of[replica_id] = process

    def leave(self, replica_id: str) -> None:
        """Loses all that a replica holds, and the residents of its process if no other replica is in it."""
        self.replica_ids.remove(replica_id)
        process = self.process_of[replica_id]
        is_last = all(self.process_of[other] != process for other in self.replica_ids)
        self._lose({replica_id, process} if is_last else {replica_id})

    def _lose(self, holders: set[str]) -> None:
        held = {block for block in (*self.stored, *self.vanished) if block[0] in holders}
        self.gone |= held
        self.vanished -= held
        for block in held & self.stored.keys():
            del self.stored[block]

    def keep(self, array: Array, node: str = "", holder: str = "") -> TensorRef:
        """Returns a tensor that carries its data, or is stored in a block of its own. A gateway that holds it keeps a copy."""
        tensor = inline(array)
        if self._is_storing:
            self._num_blocks += 1
            block = self._num_blocks
            self.stored[holder, block] = {0: array}
            if holder:
                self._inputs[holder, block] = {0: array}
            return TensorRef(dtype=tensor.dtype, shape=array.shape, num_bytes=array.nbytes, node=node, holder=holder, block=block)
        return TensorRef(dtype=tensor.dtype, shape=array.shape, num_bytes=array.nbytes, node=node, data=array)

    def gateway_left(self, holder: str) -> None:
        """Loses the inputs that a gateway holds."""
        self._lose({holder})

    def announce(self, tensors: Iterable[TensorRef]) -> None:
        """Has a gateway that came back offer inputs again, which nobody but it has kept."""
        for block in blocks_of(tensors):
            self.gone.discard(block)
            self.released.discard(block)
            self.stored[block] = self._inputs[block]

    def place(self, arrays: list[Any], holder: str) -> list[TensorRef]:
        """Puts tensors into one block of a replica."""
        self._num_blocks += 1
        rows = {64 * at: np.asarray(array) for at, array in enumerate(arrays)}
        if holder in self.replica_ids:
            self.stored[holder, self._num_blocks] = rows
        else:
            self.gone.add((holder, self._num_blocks))
        node = self.nodes[holder]
        return [
            TensorRef(
                dtype=inline(array).dtype, shape=array.shape, num_bytes=array.nbytes, node=node, holder=holder,
                block=self._num_blocks, offset=offset,
            )
            for offset, array in rows.items()
        ]  # fmt: skip

    def hold(self, rows: ResidentRows, replica_id: str) -> list[TensorRef]:
        """Keeps residents in the process of a replica."""
        process, node, refs = self.process_of[replica_id], self.nodes[replica_id], list[TensorRef]()
        for resident, num_bytes in zip(rows.objects, rows.sizes, strict=True):
            self._num_blocks += 1
            if replica_id in self.replica_ids:
                self.stored[process, self._num_blocks] = {0: resident}
            else:
                self.gone.add((process, self._num_blocks))
            refs.append(
                TensorRef(dtype=DType.RESIDENT, shape=(), num_bytes=num_bytes, node=node, holder=process, block=self._num_blocks)
            )
        return refs

    def read(self, tensors: Iterable[TensorRef]) -> tuple[list[Array], list[BlockId]]:
        """Returns the contents of tensors; or none, and the blocks that were lost."""
        tensors = list(tensors)
        blocks = blocks_of(tensors)
        for block in blocks:
            assert block not in self.released, f"{block} was released and is read"
        if lost := [block for block in blocks if block not in self.stored]:
            assert self.gone.union(self.vanished).issuperset(lost), f"{lost} are read and never were"
            return [], lost
        return [self.array(tensor) for tensor in tensors], []

    def array(self, tensor: TensorRef) -> Array:
        """Returns what a tensor holds that is there."""
        array = tensor.data if tensor.data is not None else self.stored[tensor.holder, tensor.block][tensor.offset]
        return apply_views(array, tensor.views)

    def vanish(self, block: BlockId) -> None:
        """Takes a block from its holder; nobody notices before the block is needed."""
        del self.stored[block]
        self.vanished.add(block)

    def release(self, block: BlockId) -> None:
        """Frees a block."""
        assert block not in self.released, f"{block} was released twice"
        assert block not in self.gone, f"{block} is released, but its holder is gone"
        if block in self.vanished:
            self.vanished.remove(block)
        else:
            del self.stored[block]
        self.released.add(block)
