"""What ATen's operations mean, over any kind of numbers: once for a finite field and for formulas.

Operations that are linear, bilinear or only move elements are exact. The others say only which elements of their
outputs depend on which elements of their inputs, by the same unknown function everywhere: `gelu` is a function of one element,
`softmax` of a row and a position in it, pooling of a plane. What holds for all such functions holds for the real ones.
The geometry of a convolution is unknown, too: each plane of the output is a bilinear function of planes of the inputs, the same
for all samples and channels.
"""

from collections.abc import Mapping

from dyorc.planner.verify.meanings import elementwise, indices, planes, reductions, shapes
from dyorc.planner.verify.meanings.call import Meaning, OperationCall, UnknownOperationError

_PARTS = (elementwise, reductions, planes, indices, shapes)
_MEANINGS: Mapping[str, Meaning] = {name: meaning for part in _PARTS for name, meaning in part.MEANINGS.items()}

__all__ = ["OperationCall", "UnknownOperationError", "meaning_of", "operations_with_meanings"]


def operations_with_meanings() -> frozenset[str]:
    """Returns the names of all operations that are defined, without namespace and overload."""
    return frozenset(_MEANINGS)


def meaning_of(op: str) -> Meaning:
    """Returns what an operation means.

    Raises:
        UnknownOperationError: There is no definition.
    """
    meaning = _MEANINGS.get(op.split(".")[1])
    if meaning is None:
        raise UnknownOperationError(f"{op} has no definition")
    return meaning
