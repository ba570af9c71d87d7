"""What a program or workflow takes and gives, read from its `jaxtyping` annotations.

`Signature.of` is called once per definition; the checks run for every request. A `TensorSpec` is written to be read in an
error message: it names the tensor, the dimension, and both sizes.
"""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

from jaxtyping import AbstractDtype

from dyorc.errors import DefinitionError, InvalidInputError
from dyorc.tensor import DType, Shape, TensorRef

if TYPE_CHECKING:
    Bytes = Annotated
else:

    class Bytes(AbstractDtype):
        """A tensor of byte strings (the protocol's BYTES): a NumPy object array of `bytes`."""

        dtypes = ("object",)


class Finite:
    """Marks a float input that must hold no NaN and no infinity: ``Annotated[Float[Tensor, "n"], dyorc.Finite]``."""


BATCH = "batch"
"""Name of the leading dimension that a batched program declares and a workflow never sees."""

# `Float` and `Int` name one type on the wire, so that a wrong type is refused at the door and not inside a program.
_DTYPES = {
    "Float": DType.FP32, "Float16": DType.FP16, "BFloat16": DType.BF16, "Float32": DType.FP32, "Float64": DType.FP64,
    "Int": DType.INT64, "Int8": DType.INT8, "Int16": DType.INT16, "Int32": DType.INT32, "Int64": DType.INT64,
    "UInt8": DType.UINT8, "UInt16": DType.UINT16, "UInt32": DType.UINT32, "UInt64": DType.UINT64,
    "Bool": DType.BOOL, "Bytes": DType.BYTES,
}  # fmt: skip

StaticValue: TypeAlias = bool | int | float | str
STATIC_TYPES = (bool, int, float, str)


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
        variadic_at: Where ``...`` stands among `dims`; None if the rank is fixed.
        is_finite: Whether NaN and infinity are refused.
    """

    name: str
    dtype: DType
    dims: tuple[Dim, ...]
    framework: Framework
    variadic_at: int | None = None
    is_finite: bool = False

    @classmethod
    def of(cls, name: str, annotation: Any, owner: str) -> Self | None:
        """The spec of a jaxtyping annotation; None if `annotation` is none.

        Raises:
            DefinitionError: If the annotation leaves open what travels on the wire.
        """
        is_finite = False
        if typing.get_origin(annotation) is Annotated:
            annotation, *marks = typing.get_args(annotation)
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
    def fixed_shape(self) -> Shape | None:
        """The only shape it can have, if there is only one."""
        if self.variadic_at is not None or any(dim.size is None for dim in self.dims):
            return None
        return tuple(dim.size for dim in self.dims if dim.size is not None)

    @property
    def wire_shape(self) -> list[int]:
        """Shape for the protocol's metadata: -1 stands for any size."""
        sizes = [-1 if dim.size is None else dim.size for dim in self.dims]
        if self.variadic_at is not None:
            sizes.insert(self.variadic_at, -1)
        return sizes

    def describe(self) -> str:
        """The shape as the annotation writes it, e.g. ``[3, height, width]``."""
        words = [str(dim) for dim in self.dims]
        if self.variadic_at is not None:
            words.insert(self.variadic_at, "...")
        return f"[{', '.join(words)}]"

    def without_batch(self, owner: str) -> Self:
        """This tensor for one item.

        Raises:
            DefinitionError: If its first dimension is not called "batch".
        """
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
            where: Whose tensor it is, for the error's text.

        Raises:
            InvalidInputError: If it does not fit; names the tensor, the dimension, and both sizes.
        """
        if dtype is not self.dtype:
            raise InvalidInputError(f"{where}: {self.name!r} is {dtype}, expected {self.dtype}")
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


def _parse_dims(text: str) -> tuple[tuple[Dim, ...], int | None]:
    """Dimensions of a jaxtyping shape string; an expression such as ``width//8`` counts as any size."""
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


@dataclass(frozen=True, slots=True)
class StaticSpec:
    """A parameter that is no tensor: part of the batch key, and a request parameter of the protocol."""

    name: str
    type: type
    default: Any = inspect.Parameter.empty

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def check(self, value: Any, where: str) -> StaticValue:
        """The value, as this parameter's type.

        Raises:
            InvalidInputError: If it is of another type.
        """
        if self.type is float and type(value) is int:
            return float(value)
        if type(value) is not self.type:
            raise InvalidInputError(
                f"{where}: parameter {self.name!r} is {type(value).__name__} {value!r}, expected {self.type.__name__}"
            )
        return value


class OutputKind(Enum):
    """How the outputs are grouped in Python."""

    SINGLE = "one tensor"
    TUPLE = "a tuple"
    FIELDS = "named tensors"


@dataclass(frozen=True)
class OutputSpec:
    """What comes out: one or more tensors, in a fixed order.

    Attributes:
        factory: Rebuilds the user's grouping of `FIELDS` from keyword arguments (`dict`, or the dataclass).
    """

    kind: OutputKind
    tensors: tuple[TensorSpec, ...]
    factory: Callable[..., Any] = dict

    @classmethod
    def of(cls, annotation: Any, owner: str) -> Self:
        """Reads a return annotation.

        Raises:
            DefinitionError: If it is no tensor, tuple of tensors, TypedDict or dataclass of tensors.
        """

        def spec(name: str, part: Any) -> TensorSpec:
            found = TensorSpec.of(name, part, owner)
            if found is None:
                raise DefinitionError(f"{owner}: output {name!r} is annotated {part!r}; expected a jaxtyping tensor")
            return found

        if typing.get_origin(annotation) is tuple:
            parts = typing.get_args(annotation)
            return cls(OutputKind.TUPLE, tuple(spec(f"output_{at}", part) for at, part in enumerate(parts)))
        if is_dataclass(annotation) and isinstance(annotation, type):
            hints = typing.get_type_hints(annotation, include_extras=True)
            return cls(OutputKind.FIELDS, tuple(spec(f.name, hints[f.name]) for f in fields(annotation)), annotation)
        if typing.is_typeddict(annotation):
            hints = typing.get_type_hints(annotation, include_extras=True)
            return cls(OutputKind.FIELDS, tuple(spec(name, hint) for name, hint in hints.items()))
        return cls(OutputKind.SINGLE, (spec("output", annotation),))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    def build(self, parts: Sequence[Any]) -> Any:
        """The user's grouping of `parts`, which stand in the order of `tensors`."""
        match self.kind:
            case OutputKind.SINGLE:
                return parts[0]
            case OutputKind.TUPLE:
                return tuple(parts)
            case OutputKind.FIELDS:
                return self.factory(**dict(zip(self.names, parts, strict=True)))

    def flatten(self, value: Any, where: str) -> tuple[Any, ...]:
        """The parts of the user's grouping, in the order of `tensors`.

        Raises:
            InvalidInputError: If `value` is grouped in another way, or lacks a part.
        """
        match self.kind:
            case OutputKind.SINGLE:
                return (value,)
            case OutputKind.TUPLE:
                if not isinstance(value, tuple | list) or len(value) != len(self.tensors):
                    raise InvalidInputError(
                        f"{where} returned {_kind_of(value)}, expected a tuple of {len(self.tensors)} tensors"
                    )
                return tuple(value)
            case OutputKind.FIELDS:
                if is_dataclass(value) and not isinstance(value, type):
                    value = {f.name: getattr(value, f.name) for f in fields(value)}
                if not isinstance(value, Mapping) or set(value) != set(self.names):
                    raise InvalidInputError(f"{where} returned {_kind_of(value)}, expected the fields {list(self.names)}")
                return tuple(value[name] for name in self.names)


def _kind_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"the fields {list(value)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


@dataclass(frozen=True)
class Signature:
    """Everything that goes in and comes out of a program (for one item) or a workflow."""

    owner: str
    parameters: tuple[TensorSpec | StaticSpec, ...]
    outputs: OutputSpec

    @classmethod
    def of(cls, owner: str, function: Callable[..., Any], *, skip_first: bool = False) -> Self:
        """Reads the annotations of `function`; `skip_first` leaves ``self`` out.

        Raises:
            DefinitionError: If one is missing or is neither a tensor nor a bool, int, float or str.
        """
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as error:
            raise DefinitionError(f"{owner}: an annotation names something unknown: {error}") from error
        if "return" not in hints:
            raise DefinitionError(f"{owner}: the return annotation is missing; expected jaxtyping tensors")
        parameters: list[TensorSpec | StaticSpec] = []
        for parameter in list(inspect.signature(function).parameters.values())[skip_first:]:
            name = parameter.name
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise DefinitionError(f"{owner}: *{name} is not supported; declare each tensor")
            if name not in hints:
                raise DefinitionError(f"{owner}: parameter {name!r} is not annotated")
            if (tensor := TensorSpec.of(name, hints[name], owner)) is not None:
                parameters.append(tensor)
            elif hints[name] in STATIC_TYPES:
                parameters.append(StaticSpec(name, hints[name], parameter.default))
            else:
                raise DefinitionError(
                    f"{owner}: parameter {name!r} is annotated {hints[name]!r}; "
                    f"expected a jaxtyping tensor, bool, int, float or str"
                )
        return cls(owner, tuple(parameters), OutputSpec.of(hints["return"], owner))

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(p for p in self.parameters if isinstance(p, TensorSpec))

    @cached_property
    def input_group(self) -> OutputSpec:
        """The tensor inputs as a group, which is how a workflow sees its own."""
        return OutputSpec(OutputKind.TUPLE, self.inputs)

    @cached_property
    def statics(self) -> tuple[StaticSpec, ...]:
        return tuple(p for p in self.parameters if isinstance(p, StaticSpec))

    @cached_property
    def _is_plain(self) -> bool:
        return not self.statics

    def without_batch(self) -> "Signature":
        """The signature for one item of a batched program."""
        parameters = tuple(p.without_batch(self.owner) if isinstance(p, TensorSpec) else p for p in self.parameters)
        tensors = tuple(tensor.without_batch(self.owner) for tensor in self.outputs.tensors)
        return Signature(self.owner, parameters, replace(self.outputs, tensors=tensors))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[StaticValue, ...]]:
        """Sorts a call's arguments into tensors (in the order of `inputs`) and statics (in the order of `statics`).

        Raises:
            InvalidInputError: If one is missing, unknown, given twice, or a static of another type.
        """
        if self._is_plain and not kwargs and len(args) == len(self.parameters):
            return args, ()
        if len(args) > len(self.parameters):
            raise InvalidInputError(f"{self.owner} takes {len(self.parameters)} arguments, {len(args)} were given")
        given = dict(zip((p.name for p in self.parameters), args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise InvalidInputError(f"{self.owner}: {name!r} was given twice")
            given[name] = value
        tensors: list[Any] = []
        statics: list[StaticValue] = []
        for parameter in self.parameters:
            value = given.pop(parameter.name, inspect.Parameter.empty)
            if isinstance(parameter, StaticSpec):
                value = parameter.default if value is inspect.Parameter.empty else value
            if value is inspect.Parameter.empty:
                raise InvalidInputError(f"{self.owner}: {parameter.name!r} is missing; expected {self.names()}")
            if isinstance(parameter, StaticSpec):
                statics.append(parameter.check(value, self.owner))
            else:
                tensors.append(value)
        if given:
            raise InvalidInputError(f"{self.owner} has no parameter {sorted(given)}; expected {self.names()}")
        return tuple(tensors), tuple(statics)

    def names(self) -> list[str]:
        """Names of all parameters, for messages."""
        return [p.name for p in self.parameters]

    def check_inputs(self, tensors: Sequence[TensorRef]) -> None:
        """Checks tensors in the order of `inputs`.

        Raises:
            InvalidInputError: If one does not fit.
        """
        sizes: dict[str, tuple[int, str]] = {}
        for spec, tensor in zip(self.inputs, tensors, strict=True):
            spec.check(tensor.dtype, tensor.shape, sizes, self.owner)
