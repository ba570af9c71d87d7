"""What equal requests have in common, so that one can tell that an input has come before."""

import hashlib
from collections.abc import Sequence

import numpy as np

from dyorc.arrays import Array
from dyorc.authoring.signature import StaticValue


class InputsIdentity:
    """Equal for requests of one workflow with the same inputs, to the bit. To the engine it is just something hashable.

    The digest is made when it is asked for, which is hardly ever, and only while the request is open: later its inputs may lie in
    memory that is used again. Asked for too late, it is equal to nothing but itself.

    Cost: of the digest, about 1 ms for each MB.
    """

    __slots__ = ("_arrays", "_digest", "_statics", "_workflow")

    def __init__(self, workflow: str, arrays: Sequence[Array], statics: tuple[StaticValue, ...]) -> None:
        self._workflow = workflow
        self._arrays: Sequence[Array] | None = arrays
        self._statics = statics
        self._digest: bytes | None = None

    def close(self) -> None:
        """The request has ended: forgets its inputs, not their digest."""
        self._arrays = None

    def _made(self) -> bytes | None:
        if self._digest is None and self._arrays is not None:
            self._digest = _digest(self._workflow, self._arrays, self._statics)
        return self._digest

    def __hash__(self) -> int:
        digest = self._made()
        return id(self) if digest is None else hash(digest)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, InputsIdentity) and self._made() is not None and self._made() == other._made()


def _digest(workflow: str, arrays: Sequence[Array], statics: tuple[StaticValue, ...]) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    digest.update(repr((workflow, statics)).encode(errors="surrogatepass"))
    for array in arrays:
        digest.update(repr((array.dtype.str, array.shape)).encode())
        if array.dtype == object:  # texts: each with its length, so that no two lists look the same
            for item in array.ravel().tolist():
                digest.update(f"{len(item)} ".encode() + item)
        else:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()
