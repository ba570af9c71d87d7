"""The identity that equal requests share, which recognizes inputs that came before."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dyorc.authoring.signature import StaticValue
from dyorc.core.arrays import Array
from dyorc.engine.events import SuspectInput, SuspectsReported


class InputsIdentity:
    """Equal for two requests of one workflow whose inputs are the same to the bit. To the engine it is just a hashable object.

    The digest is computed only when it is needed, which is rare, and only while the request is open, since the memory of its
    inputs may be reused afterwards. If it is needed later than that, the object equals only itself.

    Cost: about 1 ms per MB for the digest.
    """

    __slots__ = ("_arrays", "_digest", "_statics", "_workflow")

    def __init__(self, workflow: str, arrays: Sequence[Array], statics: tuple[StaticValue, ...]) -> None:
        self._workflow = workflow
        self._arrays: Sequence[Array] | None = arrays
        self._statics = statics
        self._digest: bytes | None = None

    @classmethod
    def from_digest(cls, digest: bytes) -> "InputsIdentity":
        """Returns the identity of inputs whose digest alone is known."""
        identity = cls("", (), ())
        identity._arrays, identity._digest = None, digest
        return identity

    @property
    def digest(self) -> bytes | None:
        """The same for equal requests, in every process; None if it was not computed while the request was open."""
        return self._compute()

    def close(self) -> None:
        """Forgets the inputs of a request that has ended, but not their digest."""
        self._arrays = None

    def _compute(self) -> bytes | None:
        if self._digest is None and self._arrays is not None:
            self._digest = _digest(self._workflow, self._arrays, self._statics)
        return self._digest

    def __hash__(self) -> int:
        digest = self._compute()
        return id(self) if digest is None else hash(digest)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, InputsIdentity) and self._compute() is not None and self._compute() == other._compute()


def _digest(workflow: str, arrays: Sequence[Array], statics: tuple[StaticValue, ...]) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    digest.update(repr((workflow, statics)).encode(errors="surrogatepass"))
    for array in arrays:
        digest.update(repr((array.dtype.str, array.shape)).encode())
        if array.dtype == object:  # strings: each is preceded by its length, so that no two lists look the same
            for item in array.ravel().tolist():
                digest.update(f"{len(item)} ".encode() + item)
        else:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()


def read_warning(value: Mapping[str, Any]) -> SuspectsReported:
    """Returns the event for the engine."""
    return SuspectsReported(_dangers(value["suspects"]), _dangers(value["refused"]), value["until_ns"])


def _dangers(values: Sequence[Sequence[Any]]) -> list[SuspectInput]:
    return [
        SuspectInput(program, InputsIdentity.from_digest(bytes.fromhex(digest)), reason, until_ns)
        for program, digest, reason, until_ns in values
    ]
