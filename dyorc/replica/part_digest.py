"""A digest of one part of a stream: a program that is run again has to yield the same."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from dyorc.core.arrays import dtype_of
from dyorc.protocol.raw import encode_bytes
from dyorc.transport.column_codec import Rows

_NUM_BYTES = 16


def digest_of(outputs: Sequence[Rows]) -> bytes:
    """Returns 16 bytes that tell the types, shapes and bytes of a part's tensors.

    Args:
        outputs: For each output, its one array.
    """
    digest = blake2b(digest_size=_NUM_BYTES)
    for (array,) in outputs:
        dtype = dtype_of(array)
        digest.update(f"{dtype.value}{array.shape}".encode())
        digest.update(
            encode_bytes(array) if array.dtype == object else np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        )
    return digest.digest()
