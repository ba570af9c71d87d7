"""One declared tensor, read from its `jaxtyping` annotation.

A failed check names the tensor, the dimension, and both sizes.
"""

import contextlib
import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Self, get_args, get_origin

import numpy as np
from jaxtyping import AbstractDtype

from dyorc.authoring.resident import ResidentMark
from dyorc.authoring.values import ContentKind, ValueType, advice_on, check_image, has_base64
from dyorc.core.arrays import Array, as_array, as_value, element_of_bytes
from dyorc.core.tensor import TENSOR_TYPES, DType, Shape
from dyorc.errors import DefinitionError, InvalidInputError

if TYPE_CHECKING:
    Bytes = Annotated
else:

    class Bytes(AbstractDtype):
        """A tensor of byte strings (the protocol's BYTES): a NumPy object array of `bytes`."""

        dtypes = ("object",)


class Finite:
    """Marks a float input that must not hold NaN or infinity: ``Annotated[Float[Tensor, "n"], dyorc.Finite]``."""


_NUMBERS = frozenset(TENSOR_TYPES) - {DType.BYTES, DType.BOOL, DType.BF16}
"""Types that NumPy has under the same names, and converts to each other."""

BATCH = "batch"
"""Name of the leading dimension that a batched program declares and a workflow never sees."""

# `Float` and `Int` name one type on the wire, so that a wrong type is refused on arrival and not inside a program.
_DTYPES = {
    "Float": DType.FP32, "Float16": DType.FP16, "BFloat16": DType.BF16, "Float32": DType.FP32, "Float64": DType.FP64,
    "Int": DType.INT64, "Int8": DType.INT8, "Int16": DType.INT16, "Int32": DType.INT32, "Int64": DType.INT64,
    "UInt8": DType.UINT8, "UInt16": DType.UINT16, "UInt32": DType.UINT32, "UInt64": DType.UINT64,
    "Bool": DType.BOOL, "Bytes": DType.BYTES,
}  # fmt: skip


class Framework(Enum):
    """Which library's arrays a program's code handles."""

    NUMPY = "numpy"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class Dim:
    """One declared dimension: a fixed `size`, or any size under a `name` (equal names, equal sizes), or neither."""

    size: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        if self.size is not None:
            return str(self.size)
        return self.name or "_"


@dataclass(frozen=True)
class TensorSpec:
    """One declared tensor.

    Attributes:
        dims: Its dimensions without the variadic one.
        variadic_at: The position of ``...`` among `dims`; None if the rank is fixed.
        is_finite: Whether NaN and infinity are refused.
        is_consumed: Whether the program overwrites this resident.
    """

    name: str
    dtype: DType
    dims: tuple[Dim, ...]
    framework: Framework
    variadic_at: int | None = None
    is_finite: bool = False
    is_consumed: bool = False

    @classmethod
    def of(cls, name: str, annotation: Any, owner: str) -> Self | None:
        """Returns the spec of a jaxtyping annotation, or of a resident; None if `annotation` is something else.

        Raises:
            DefinitionError: If the annotation does not determine the type on the wire.
        """
        is_finite = False
        if typing.get_origin(annotation) is Annotated:
            annotation, *marks = typing.get_args(annotation)
            if resident := next((mark for mark in marks if isinstance(mark, ResidentMark)), None):
                return cls(name, DType.RESIDENT, (), Framework.NUMPY, is_consumed=resident.is_consumed)
            is_finite = any(mark is Finite or isinstance(mark, Finite) for mark in marks)
        if not hasattr(annotation, "dim_str") or not hasattr(annotation, "array_type"):
            return None
        kind: str = annotation.dtype.__name__
        if kind not in _DTYPES:
            raise DefinitionError(f"{owner}: {name!r} is {kind}, which names several types; use one of {sorted(_DTYPES)}")
        library = annotation.array_type.__module__.partition(".")[0]
        if library not in ("numpy", "torch"):
            raise DefinitionError(f"{owner}: {name!r} is an array of {library}; expected numpy.ndarray or torch.Tensor")
        dims, variadic_at = _parse_dims(annotation.dim_str)
        return cls(name, _DTYPES[kind], dims, Framework(library), variadic_at, is_finite)

    @cached_property
    def is_resident(self) -> bool:
        """Whether it is a Python object that stays in its process, and no tensor."""
        return self.dtype is DType.RESIDENT

    @cached_property
    def default_array(self) -> Array | None:
        """What it is if nobody sends it; None if it has to be sent."""
        return None

    @property
    def is_plain(self) -> bool:
        """Whether a workflow that takes it gets a plain value, and no Ref."""
        return False

    @property
    def is_file(self) -> bool:
        """Whether it is the bytes of a file."""
        return False

    @cached_property
    def fixed_shape(self) -> Shape | None:
        """The only shape it can have; None if there are several."""
        if self.variadic_at is not None or any(dim.size is None for dim in self.dims):
            return None
        return tuple(dim.size for dim in self.dims if dim.size is not None)

    @property
    def wire_shape(self) -> list[int]:
        """The shape for the protocol's metadata; -1 means any size."""
        sizes = [-1 if dim.size is None else dim.size for dim in self.dims]
        if self.variadic_at is not None:
            sizes.insert(self.variadic_at, -1)
        return sizes

    def can_be(self, other: "TensorSpec") -> bool:
        """Returns whether tensors of another spec may fit this one: the type is the same, and so are all sizes that are fixed."""
        if self.dtype is not other.dtype:
            return False
        if self.variadic_at is not None or other.variadic_at is not None:
            return True
        pairs = zip(self.dims, other.dims, strict=False)
        return len(self.dims) == len(other.dims) and all(a.size == b.size or None in (a.size, b.size) for a, b in pairs)

    @property
    def shown(self) -> str:
        """What it takes, as messages show it, e.g. ``FP32[3, height, width]``."""
        return f"{self.dtype.value}{self.describe()}"

    def describe(self) -> str:
        """Returns the shape as the annotation writes it, e.g. ``[3, height, width]``."""
        words = [str(dim) for dim in self.dims]
        if self.variadic_at is not None:
            words.insert(self.variadic_at, "...")
        return f"[{', '.join(words)}]"

    def array_of(self, value: Any, label: str) -> Array:
        """Returns a value from user code as an array.

        Raises:
            InvalidInputError: If it cannot be one; names `label`.
        """
        try:
            return as_array(value, self.dtype, label)
        except InvalidInputError:
            advice = advice_on(value) if isinstance(value, list | tuple) else ""
            if not advice:  # what is no list says itself what to do
                raise
            raise InvalidInputError(f"{label}: {type(value).__name__} cannot become a tensor of {self.dtype}{advice}") from None

    def value_of(self, array: Array, owner: str) -> Any:
        """Returns an array as a workflow's code sees it.

        Raises:
            InvalidInputError: If it does not hold what is declared.
        """
        return as_value(array)

    def without_batch(self, owner: str) -> Self:
        """Returns this tensor's spec for one item.

        Raises:
            DefinitionError: If its first dimension is not called "batch".
        """
        if self.is_resident:
            return self  # one object per row
        if not self.dims or self.dims[0].name != BATCH or self.variadic_at == 0:
            raise DefinitionError(
                f'{owner}: {self.name!r} has shape {self.describe()}; a batched program\'s tensors start with "{BATCH}" '
                f"(or declare the program with batched=False)"
            )
        variadic_at = None if self.variadic_at is None else self.variadic_at - 1
        return replace(self, dims=self.dims[1:], variadic_at=variadic_at)

    def check(self, dtype: DType, shape: Shape, sizes: dict[str, tuple[int, str]], where: str) -> None:
        """Checks type and shape.

        Args:
            sizes: Sizes of named dimensions seen so far, with the tensor that set them; updated.
            where: The tensor's owner, for the error's text.

        Raises:
            InvalidInputError: If it does not fit; names the tensor, the dimension, and both sizes.
        """
        if dtype is not self.dtype:
            raise InvalidInputError(f"{where}: {self.name!r} is {dtype}, expected {self.dtype}{_conversion(dtype, self.dtype)}")
        if shape == self.fixed_shape:
            return
        dims, axes = self.dims, tuple(range(len(shape)))
        if self.variadic_at is not None and len(shape) >= len(dims):
            cut, num_extra = self.variadic_at, len(shape) - len(dims)
            axes = axes[:cut] + axes[cut + num_extra :]
        elif len(shape) != len(dims):
            raise InvalidInputError(
                f"{where}: {self.name!r} has rank {len(shape)} (shape {list(shape)}), expected rank {len(dims)} {self.describe()}"
            )
        for at, dim in zip(axes, dims, strict=True):
            size = shape[at]
            if dim.size is not None and size != dim.size:
                raise InvalidInputError(
                    f"{where}: {self.name!r} has size {size} in dimension {at}, expected {dim.size} "
                    f"(shape {list(shape)}, expected {self.describe()})"
                )
            if dim.name is not None:
                known, by = sizes.setdefault(dim.name, (size, self.name))
                if size != known:
                    raise InvalidInputError(
                        f"{where}: {self.name!r} has size {size} in dimension {at} ({dim.name!r}), but {by!r} has {known}"
                    )


class Encoded(bytes):
    """The bytes of a structured value, which needs no further check."""


@dataclass(frozen=True)
class ValueSpec(TensorSpec):
    """One declared structured value: a tensor of BYTES of rank 0. See `dyorc.authoring.values`.

    Attributes:
        type: Its type; None where the user's code is not at hand, as in a gateway.
        kind: What its bytes are.
        schema: Its JSON Schema.
        default: The bytes of its default; None if there is none.
    """

    type: ValueType | None = None
    kind: ContentKind = ContentKind.JSON
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    default: bytes | None = None

    @classmethod
    def make(cls, name: str, type: ValueType, owner: str = "", default: Any = inspect.Parameter.empty) -> Self:
        """Returns the spec of a value of a type.

        Raises:
            DefinitionError: If the default has another type.
        """
        spec = cls(name, DType.BYTES, (), Framework.NUMPY, type=type, kind=type.kind, schema=type.schema)
        if default is inspect.Parameter.empty:
            return spec
        try:
            return replace(spec, default=type.encode(default, "its default"))
        except InvalidInputError as error:
            raise DefinitionError(f"{owner}: the default of {name!r}, annotated {type.name}: {error}") from None

    @cached_property
    def default_array(self) -> Array | None:
        return None if self.default is None else element_of_bytes(Encoded(self.default))

    @property
    def shown(self) -> str:
        return "a value as JSON" if self.kind is ContentKind.JSON else f"a value as {self.kind.value}"

    @property
    def is_plain(self) -> bool:
        """Whether workflows see it as a plain value among their inputs, not as a Ref: it is no file."""
        return self.kind in (ContentKind.TEXT, ContentKind.JSON)

    @property
    def is_file(self) -> bool:
        return not self.is_plain

    def described(self) -> dict[str, str | bool]:
        """Returns what clients have to know of it, for the protocol's metadata."""
        return {"name": self.name, "content": self.kind, "takes_bytes": self.is_file or has_base64(self.schema)}

    def can_be(self, other: TensorSpec) -> bool:
        return super().can_be(other) and self.reads(other)

    def reads(self, other: TensorSpec) -> bool:
        """Returns whether the bytes of another declared value are read as its own: not if one alone is written as JSON."""
        return not isinstance(other, ValueSpec) or (self.kind is ContentKind.JSON) is (other.kind is ContentKind.JSON)

    def array_of(self, value: Any, label: str) -> Array:
        if self.type is None:
            return super().array_of(value, label)
        if isinstance(value, np.ndarray) and not value.ndim and type(value[()]) is Encoded:
            return value
        return element_of_bytes(self.type.encode(value, label))

    def value_of(self, array: Array, owner: str) -> Any:
        return as_value(array) if self.type is None else self.type.decode(bytes(array[()]), f"{owner}: {self.name!r}")

    def check_content(self, array: Array, owner: str, max_image_pixels: int) -> None:
        """Checks what can be checked without the user's code: that an image is one, and has not too many pixels.

        Raises:
            InvalidInputError: If not.
        """
        if self.kind is ContentKind.IMAGE:
            with contextlib.suppress(ImportError):  # without Pillow, its program finds out
                check_image(bytes(array[()]), f"{owner}: {self.name!r}", max_image_pixels)

    def without_batch(self, owner: str) -> Self:
        if self.type is None or get_origin(self.type.annotation) is not list:
            name = "value" if self.type is None else self.type.name
            raise DefinitionError(
                f"{owner}: {self.name!r} is a {name}; a batched program takes and returns structured values as lists, with one "
                f"for each row: list[{name}] (or declare the program with batched=False)"
            )
        (item,) = get_args(self.type.annotation)
        of_row = ValueType.of(item, owner, self.name)
        if of_row is None:
            raise DefinitionError(f"{owner}: {self.name!r} is a list of {item!r}, which is no structured value")
        return self.make(self.name, of_row)


def _conversion(dtype: DType, expected: DType) -> str:
    """Returns how NumPy converts an array; nothing if it is not a matter of numbers' precision."""
    if not {dtype, expected} <= _NUMBERS:
        return ""
    return f"; in NumPy, .astype(np.{expected.value.lower().replace('fp', 'float')}) converts an array"


@lru_cache(maxsize=1024)
def _parse_dims(text: str) -> tuple[tuple[Dim, ...], int | None]:
    """Parses a jaxtyping shape string; an expression such as ``width//8`` counts as any size."""
    dims: list[Dim] = []
    variadic_at = None
    for word in text.split():
        label, _, size = word.lstrip("#?").rpartition("=")
        if size.startswith("*") or size == "...":
            variadic_at = len(dims)
        elif size.isdigit():
            dims.append(Dim(size=int(size)))
        elif size.isidentifier() and not size.startswith("_"):
            dims.append(Dim(name=size))
        else:
            dims.append(Dim(name=label or None))
    return tuple(dims), variadic_at
