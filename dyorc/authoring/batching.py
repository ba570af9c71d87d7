"""Which calls of a program may share a batch, when their shapes differ.

Without padding, only calls of equal shapes share a batch. With padding, a named dimension is always filled up to the next bucket,
even for a single call, so the shape in which a call is computed never depends on the other calls of its batch.
"""

import bisect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from dyorc.authoring.exact_values import statics_key
from dyorc.authoring.signature import Signature, StaticValue
from dyorc.core.tensor import Shape, TensorRef
from dyorc.errors import DefinitionError, SizeLimitError
from dyorc.scaling.value_checks import is_count

BatchKey: TypeAlias = tuple[Hashable, tuple[Shape, ...]]


@dataclass(frozen=True)
class Padding:
    """Buckets of named dimensions, ascending, and the value that fills the rest."""

    buckets: dict[str, tuple[int, ...]]
    value: float = 0.0

    def bucket(self, name: str, size: int) -> int | None:
        """Returns the smallest bucket that holds `size`, or None if even the largest does not."""
        buckets = self.buckets[name]
        at = bisect.bisect_left(buckets, size)
        return buckets[at] if at < len(buckets) else None


def pad(value: float = 0.0, **buckets: Sequence[int]) -> Padding:
    """Declares buckets for named dimensions: ``@dyorc.program(pad=dyorc.pad(width=(160, 320, 640)))``.

    Outputs that declare the same dimension are cut back to the call's own size.

    Raises:
        DefinitionError: If a dimension has no buckets, one is not a positive whole number, or `value` is not a number.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise DefinitionError(f"dyorc.pad: value is {value!r}, expected a number")
    for name, sizes in buckets.items():
        if not isinstance(sizes, Sequence) or not sizes or not all(is_count(size) and size > 0 for size in sizes):
            raise DefinitionError(f"dyorc.pad: {name} has buckets {sizes!r}; expected positive sizes")
    return Padding({name: tuple(sorted(set(sizes))) for name, sizes in buckets.items()}, value)


class BatchKeys:
    """Computes the batch key of a program's calls: equal keys may share a batch."""

    def __init__(self, owner: str, signature: Signature, padding: Padding | None) -> None:
        self._owner = owner
        self._names = [spec.name for spec in signature.inputs]
        self._padding = padding
        self._padded = [
            [(axis, dim.name) for axis, dim in enumerate(spec.dims) if padding and dim.name in padding.buckets]
            for spec in signature.inputs
        ]
        self._is_constant = not signature.statics and all(spec.fixed_shape is not None for spec in signature.inputs)

    @classmethod
    def of(cls, owner: str, signature: Signature, padding: Padding | None) -> Self:
        """Checks that each padded dimension belongs to an input, and only to tensors of fixed rank.

        Raises:
            DefinitionError: If one is not.
        """
        for name in padding.buckets if padding else ():
            matching = [
                spec for spec in (*signature.inputs, *signature.outputs.tensors) if any(dim.name == name for dim in spec.dims)
            ]
            for spec in matching:
                if spec.variadic_at is not None:
                    raise DefinitionError(f"{owner}: pad names dimension {name!r} of {spec.name!r}, whose rank is not fixed")
            if not any(spec in signature.inputs for spec in matching):
                raise DefinitionError(f"{owner}: pad names dimension {name!r}, which no input has")
        return cls(owner, signature, padding)

    def key(self, tensors: Sequence[TensorRef], statics: tuple[StaticValue, ...]) -> BatchKey:
        """Returns the key of a call whose inputs were checked.

        Raises:
            SizeLimitError: If a dimension exceeds its largest bucket.
        """
        if self._is_constant:
            return (), ()
        return statics_key(statics), tuple(self.padded_shape(at, tensor.shape) for at, tensor in enumerate(tensors))

    def padded_shape(self, at: int, shape: Shape) -> Shape:
        """Returns the shape of input `at` after padding.

        Raises:
            SizeLimitError: If a dimension exceeds its largest bucket.
        """
        if not self._padding or not self._padded[at]:
            return shape
        sizes = list(shape)
        for axis, name in self._padded[at]:
            bucket = self._padding.bucket(name, sizes[axis])
            if bucket is None:
                largest = self._padding.buckets[name][-1]
                raise SizeLimitError(
                    f"{self._owner}: {self._names[at]!r} has size {sizes[axis]} in dimension {axis} ({name!r}), "
                    f"expected at most {largest}, the largest bucket",
                    at,
                )
            sizes[axis] = bucket
        return tuple(sizes)
