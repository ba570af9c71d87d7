"""Turns what a program returned into references.

Everything is copied once, for a program may return a buffer of its own that it overwrites in the next batch, or its input. Not
copied is what it wrote into memory that it had asked for (`dyorc.empty`): by contract, it writes nothing more there.
"""

from collections.abc import Sequence

import numpy as np

from dyorc.answering.tensor_exchange import OWN, stored_refs
from dyorc.authoring.array_memory import Reserve
from dyorc.core.arrays import Array, dtype_of
from dyorc.core.tensor import TensorRef
from dyorc.transport.codec import Rows, StoredColumn, each_row
from dyorc.transport.outbox import Outbox

_SHARED_BYTES = 4096
"""Up to this size, the tensors of a batch share one copy; then one that is kept keeps them all."""


class ProgramResults:
    """Makes references to the results of one program. Any thread, one at a time.

    Args:
        node: This machine.
        outbox: Where large tensors go. The others stay arrays, and are freed when nobody refers to them any more.
    """

    def __init__(self, node: str, outbox: Outbox) -> None:
        self._node = node
        self._outbox = outbox

    @property
    def reserve(self) -> Reserve:
        """Where the program may write large results (`dyorc.empty`)."""
        return self._outbox.reserve

    def keep(self, outputs: Sequence[Rows]) -> list[tuple[TensorRef, ...]]:
        """Returns references to the outputs of a batch, call by call.

        Raises:
            NoRoomError: If the arena has no room now. Nothing was kept.
            TransportError: If it never will.
        """
        stored = self._store(outputs)
        columns = [
            stored_refs(stored[at], OWN, self._node) if at in stored else self._inline(rows) for at, rows in enumerate(outputs)
        ]
        return list(zip(*columns, strict=True))

    def check_beside(self, num_bytes: int, inputs: Sequence[TensorRef]) -> None:
        """Checks that results of this size can lie in shared memory beside inputs that lie there.

        Raises:
            TooLargeError: If not.
        """
        self._outbox.check_beside(num_bytes, sum(tensor.num_bytes for tensor in inputs if tensor.node == self._node))

    def done(self) -> None:
        """The batch has ended: forgets memory that was reserved for results and did not become one."""
        self._outbox.drop_reserved()

    def _store(self, outputs: Sequence[Rows]) -> dict[int, StoredColumn]:
        """Puts large outputs into the arena, all or none; returns where they are."""
        large = [at for at, rows in enumerate(outputs) if not self._outbox.is_small(rows)]
        headers, _ = self._outbox.write([outputs[at] for at in large])
        return {at: header for at, header in zip(large, headers, strict=True) if isinstance(header, StoredColumn)}

    def _inline(self, rows: Rows) -> list[TensorRef]:
        if isinstance(rows, np.ndarray) and rows.nbytes <= _SHARED_BYTES * len(rows):
            return self._refs(each_row(np.array(rows, order="C")))
        return self._refs([np.array(row, order="C") for row in rows])

    def _refs(self, rows: Sequence[Array]) -> list[TensorRef]:
        dtype, node = dtype_of(rows[0]), self._node
        return [TensorRef(dtype=dtype, shape=row.shape, num_bytes=row.nbytes, node=node, data=row) for row in rows]
