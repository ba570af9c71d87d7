"""Which outputs are made an answer on a thread (`off_loop.py`). They stay pinned where they are until that is done."""

from collections.abc import Sequence

from dyorc.arrays import Array
from dyorc.off_loop import INLINE_BYTES
from dyorc.transport.outbox import num_bytes_of


def is_large(arrays: Sequence[Array]) -> bool:
    """Returns whether outputs are worth a thread."""
    num_bytes = 0
    for array in arrays:
        num_bytes += array.nbytes
    if num_bytes <= INLINE_BYTES and any(array.dtype == object for array in arrays):  # texts are longer than what points to them
        num_bytes = sum(map(num_bytes_of, arrays))
    return num_bytes > INLINE_BYTES
