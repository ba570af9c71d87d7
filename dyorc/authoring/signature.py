"""The whole signature of a program or workflow: tensors, static parameters, and grouped outputs.

`Signature.of` runs once per definition; the checks run for every request and every call.
"""

import inspect
import sys
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
from typing_extensions import is_typeddict

from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.authoring.values import MAX_IMAGE_PIXELS, ValueType, has_tensors
from dyorc.core.arrays import Array
from dyorc.core.tensor import FLOATS, TensorRef
from dyorc.errors import DefinitionError, InvalidInputError

StaticValue: TypeAlias = bool | int | float | str
STATIC_TYPES = (bool, int, float, str)
_VALUES = (
    "a structured value: str, int, float, bool, list, dict, a dataclass, TypedDict or pydantic model; or a file by itself, not "
    "inside another type: bytes, an image or dyorc.File"
)
_MAX_FLOAT = int(sys.float_info.max)


@dataclass(frozen=True, slots=True)
class StaticSpec:
    """A parameter that is not a tensor: part of the batch key, and a request parameter of the protocol."""

    name: str
    type: type
    default: Any = inspect.Parameter.empty

    @classmethod
    def of(cls, name: str, kind: Any, default: Any, owner: str) -> Self:
        """Returns the parameter of a function.

        Raises:
            DefinitionError: If its default has another type.
        """
        spec = cls(name, kind, default)
        if default is inspect.Parameter.empty:
            return spec
        try:
            return replace(spec, default=spec.check(default, owner))
        except InvalidInputError:
            raise DefinitionError(
                f"{owner}: the default of {name!r} is {default!r}, expected {kind.__name__}, as it is annotated"
            ) from None

    def check(self, value: Any, where: str) -> StaticValue:
        """Returns the value as this parameter's type; tensors of rank 0 and NumPy scalars count as the number that they hold.

        Raises:
            InvalidInputError: If it has another type.
        """
        if type(value) is self.type:
            return value
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            value = value.item()
        if self.type is float and type(value) is int and abs(value) <= _MAX_FLOAT:
            return float(value)
        if type(value) is not self.type:
            raise InvalidInputError(
                f"{where}: parameter {self.name!r} is {type(value).__name__} {value!r}, expected {self.type.__name__}"
            )
        return value

    def described(self) -> dict[str, Any]:
        """Returns its name, type and default, as plain values; a default of None means no default."""
        default = None if self.default is inspect.Parameter.empty else self.default
        return {"name": self.name, "type": self.type.__name__, "default": default}


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A parameter that is a stream, ``words: AsyncIterator[Bytes[np.ndarray, ""]]``. Only workflows can pass one.

    Attributes:
        outputs: How the value of one part is grouped.
        is_async: Whether it is read by ``async for``.
    """

    name: str
    outputs: "OutputSpec"
    is_async: bool = True

    def check(self, given: "OutputSpec", where: str) -> None:
        """Checks that the parts of a stream can be those of this one.

        Raises:
            InvalidInputError: If they are other tensors.
        """
        mine, theirs = self.outputs.tensors, given.tensors
        if len(mine) != len(theirs) or not all(a.can_be(b) for a, b in zip(mine, theirs, strict=True)):
            raise InvalidInputError(f"{where}: {self.name!r} is a stream of {_shown(theirs)}, expected {_shown(mine)}")


Parameter: TypeAlias = TensorSpec | StaticSpec | StreamSpec


class OutputKind(Enum):
    """How the outputs are grouped in Python."""

    SINGLE = "one tensor"
    TUPLE = "a tuple"
    FIELDS = "named tensors"


@dataclass(frozen=True)
class OutputSpec:
    """The outputs: one or more tensors, in a fixed order.

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
            DefinitionError: If it is neither a tensor, nor a structured value, nor a tuple of them, nor a TypedDict or dataclass
                with tensors among its fields.
        """

        def spec(name: str, part: Any) -> TensorSpec:
            if (tensor := TensorSpec.of(name, part, owner)) is not None:
                return tensor
            if typing.get_origin(part) in _STREAMS:
                raise DefinitionError(f"{owner} is annotated {part!r}, but does not yield")
            if (value := ValueType.of(part, owner, name)) is not None:
                return ValueSpec.make(name, value)
            raise DefinitionError(f"{owner}: output {name!r} is annotated {part!r}; expected a jaxtyping tensor, or {_VALUES}")

        if typing.get_origin(annotation) is tuple and Ellipsis not in typing.get_args(annotation):
            parts = typing.get_args(annotation)
            return cls(OutputKind.TUPLE, tuple(spec(f"output_{at}", part) for at, part in enumerate(parts)))
        if isinstance(annotation, type) and is_dataclass(annotation) and (has_tensors(annotation) or not fields(annotation)):
            hints = typing.get_type_hints(annotation, include_extras=True)
            return cls(OutputKind.FIELDS, tuple(spec(f.name, hints[f.name]) for f in fields(annotation)), annotation)
        if is_typeddict(annotation) and has_tensors(annotation):
            hints = typing.get_type_hints(annotation, include_extras=True)
            return cls(OutputKind.FIELDS, tuple(spec(name, hint) for name, hint in hints.items()))
        return cls(OutputKind.SINGLE, (spec("output", annotation),))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    @cached_property
    def residents(self) -> tuple[int, ...]:
        """The places of what stays in the process of its program."""
        return tuple(at for at, tensor in enumerate(self.tensors) if tensor.is_resident)

    @cached_property
    def is_single(self) -> bool:
        """Whether it is one tensor, and no group of them."""
        return self.kind is OutputKind.SINGLE

    @cached_property
    def has_residents(self) -> bool:
        """Whether some of it stays in the process of its program."""
        return bool(self.residents)

    @cached_property
    def is_file(self) -> bool:
        """Whether it is one file, and nothing beside it."""
        return self.kind is OutputKind.SINGLE and self.tensors[0].is_file

    def build(self, parts: Sequence[Any]) -> Any:
        """Groups `parts`, which are in the order of `tensors`, as the user declared."""
        if self.is_single:
            return parts[0]
        if self.kind is OutputKind.TUPLE:
            return tuple(parts)
        return self.factory(**dict(zip(self.names, parts, strict=True)))

    def flatten(self, value: Any, where: str, verb: str = "returned") -> tuple[Any, ...]:
        """Returns the parts of the user's grouping, in the order of `tensors`. `where` and `verb` begin the text of errors.

        Raises:
            InvalidInputError: If `value` is grouped differently, or lacks a part.
        """
        if value is None and not (self.is_single and isinstance(self.tensors[0], ValueSpec)):
            hint = "; is a `return` missing?" if verb == "returned" else ""
            raise InvalidInputError(f"{where} {verb} None, expected {self._describe()}{hint}")
        if self.is_single:
            return (value,)
        if self.kind is OutputKind.TUPLE:
            if not isinstance(value, tuple | list) or len(value) != len(self.tensors):
                raise InvalidInputError(f"{where} {verb} {_kind_of(value)}, expected {self._describe()}")
            return tuple(value)
        if is_dataclass(value) and not isinstance(value, type):
            value = {f.name: getattr(value, f.name) for f in fields(value)}
        if not isinstance(value, Mapping) or set(value) != set(self.names):
            raise InvalidInputError(f"{where} {verb} {_kind_of(value)}, expected {self._describe()}")
        return tuple(value[name] for name in self.names)

    def _describe(self) -> str:
        match self.kind:
            case OutputKind.SINGLE:
                return f"a tensor {self.tensors[0].describe()}"
            case OutputKind.TUPLE:
                return f"a tuple of {len(self.tensors)} tensors"
            case OutputKind.FIELDS:
                return f"the fields {list(self.names)}"


_ASYNC_STREAMS = (AsyncIterator, AsyncGenerator)
_STREAMS = (*_ASYNC_STREAMS, Iterator, Generator)


def _part_of(annotation: Any, owner: str, expected: str = "AsyncIterator") -> Any:
    """Returns the annotation of one part, from the return annotation of a function that yields.

    Args:
        expected: What such a function is best annotated, for the error's text.

    Raises:
        DefinitionError: If it is no iterator or generator, async or not, or expects values to be sent.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin not in _STREAMS or not arguments:
        raise DefinitionError(f"{owner} yields, and its return annotation is {annotation!r}; expected {expected}[...] of a part")
    if any(sent not in (None, type(None)) for sent in arguments[1:]):
        raise DefinitionError(f"{owner} is annotated {annotation!r}; nothing is sent into it: expected {expected}[...]")
    return arguments[0]


def _shown(tensors: Sequence[TensorSpec]) -> str:
    return ", ".join(tensor.shown for tensor in tensors)


def _kind_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"the fields {list(value)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _default_of(parameter: Parameter) -> Any:
    """Returns what a parameter that is not given gets; `inspect.Parameter.empty` if it has to be given."""
    if isinstance(parameter, StaticSpec):
        return parameter.default
    if isinstance(parameter, ValueSpec) and parameter.default_array is not None:
        return parameter.default_array
    return inspect.Parameter.empty


def expectation(parameters: Iterable[Parameter]) -> str:
    """Returns which parameters have to be given, and which may be, for messages: ``expected ['x'], and optionally ['y']``."""
    required: list[str] = []
    optional: list[str] = []
    for parameter in parameters:
        (required if _default_of(parameter) is inspect.Parameter.empty else optional).append(parameter.name)
    if not optional:
        return f"expected {required}"
    return f"expected {required}, and optionally {optional}" if required else f"expected at most {optional}"


def check_all(specs: Sequence[TensorSpec], tensors: Sequence[TensorRef], where: str) -> None:
    """Checks tensors against their declarations.

    Args:
        where: The tensors' owner, for the error's text.

    Raises:
        InvalidInputError: If one does not fit.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for spec, tensor in zip(specs, tensors, strict=True):
        if tensor.dtype is not spec.dtype or tensor.shape != spec.fixed_shape:  # otherwise there is nothing more to check
            spec.check(tensor.dtype, tensor.shape, sizes, where)


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a program (for one item) or a workflow."""

    owner: str
    parameters: tuple[Parameter, ...]
    outputs: OutputSpec

    @classmethod
    def of(
        cls,
        owner: str,
        function: Callable[..., Any],
        *,
        skip_first: bool = False,
        is_streaming: bool = False,
        has_statics: bool = True,
    ) -> Self:
        """Reads the annotations of a function.

        Args:
            skip_first: Whether to omit ``self``.
            is_streaming: Whether the outputs are a part's.
            has_statics: Whether a bool, int, float or str is a static parameter; otherwise it is a structured value.

        Raises:
            DefinitionError: If one is missing, or is neither a tensor, nor a stream, nor a structured value.
        """
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as error:
            raise DefinitionError(f"{owner}: an annotation names something unknown: {error}") from error
        if "return" not in hints:
            raise DefinitionError(f"{owner}: the return annotation is missing; expected jaxtyping tensors or structured values")
        parameters: list[Parameter] = []
        for parameter in list(inspect.signature(function).parameters.values())[skip_first:]:
            name = parameter.name
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise DefinitionError(f"{owner}: *{name} is not supported; declare each tensor")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise DefinitionError(f"{owner}: parameter {name!r} is positional-only; arguments are passed by name")
            if name not in hints:
                raise DefinitionError(f"{owner}: parameter {name!r} is not annotated")
            if (tensor := TensorSpec.of(name, hints[name], owner)) is not None:
                if parameter.default is not parameter.empty:
                    raise DefinitionError(f"{owner}: {name!r} is a tensor and has a default; only structured values may")
                parameters.append(tensor)
            elif typing.get_origin(hints[name]) in _STREAMS:
                if parameter.default is not parameter.empty:
                    raise DefinitionError(f"{owner}: {name!r} is a stream and has a default; only structured values may")
                part = OutputSpec.of(_part_of(hints[name], f"{owner}: {name!r}"), owner)
                parameters.append(StreamSpec(name, part, typing.get_origin(hints[name]) in _ASYNC_STREAMS))
            elif has_statics and hints[name] in STATIC_TYPES:
                parameters.append(StaticSpec.of(name, hints[name], parameter.default, owner))
            elif (value := ValueType.of(hints[name], owner, name)) is not None:
                parameters.append(ValueSpec.make(name, value, owner, parameter.default))
            else:
                raise DefinitionError(
                    f"{owner}: parameter {name!r} is annotated {hints[name]!r}; expected a jaxtyping tensor, or {_VALUES}"
                )
        returned = hints["return"]
        if is_streaming:
            returned = _part_of(returned, owner, "Iterator" if inspect.isgeneratorfunction(function) else "AsyncIterator")
        outputs = OutputSpec.of(returned, owner)
        if not outputs.tensors:
            raise DefinitionError(f"{owner}: it declares no output; expected at least one tensor")
        return cls(owner, tuple(parameters), outputs)

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(p for p in self.parameters if isinstance(p, TensorSpec))

    @cached_property
    def input_group(self) -> OutputSpec:
        """The tensor inputs as a group, as a workflow sees its own."""
        return OutputSpec(OutputKind.TUPLE, self.inputs)

    @cached_property
    def statics(self) -> tuple[StaticSpec, ...]:
        return tuple(p for p in self.parameters if isinstance(p, StaticSpec))

    @cached_property
    def streams(self) -> tuple[StreamSpec, ...]:
        return tuple(p for p in self.parameters if isinstance(p, StreamSpec))

    @cached_property
    def residents(self) -> tuple[TensorSpec, ...]:
        """The inputs and outputs that stay in their process."""
        return tuple(spec for spec in (*self.inputs, *self.outputs.tensors) if spec.is_resident)

    @cached_property
    def takes_residents(self) -> bool:
        """Whether a call is bound to the process that holds its residents."""
        return any(spec.is_resident for spec in self.inputs)

    @cached_property
    def consumed(self) -> tuple[int, ...]:
        """Which of `inputs` are residents that the program overwrites."""
        return tuple(at for at, spec in enumerate(self.inputs) if spec.is_consumed)

    @cached_property
    def num_by_place(self) -> int:
        """How many arguments make a call whose parameters are all inputs, in their order; -1 if some are not."""
        return -1 if self.statics or self.streams else len(self.parameters)

    @cached_property
    def has_plain_inputs(self) -> bool:
        """Whether a workflow gets some of the inputs as plain values, and not as Refs."""
        return any(spec.is_plain for spec in self.inputs)

    def with_statics(self) -> "Signature":
        """Returns the signature with static parameters in the place of values that are a bool, int, float or str."""

        def static(spec: ValueSpec, type: Any) -> StaticSpec:
            array = spec.default_array
            default = inspect.Parameter.empty if array is None else spec.value_of(array, self.owner)
            return StaticSpec(spec.name, type, default)

        parameters = [
            static(spec, spec.type.annotation) if isinstance(spec, ValueSpec) and spec.type and spec.type.is_scalar else spec
            for spec in self.parameters
        ]
        return replace(self, parameters=tuple(parameters))

    def without_batch(self) -> "Signature":
        """Returns the signature for one item of a batched program."""
        parameters = tuple(p.without_batch(self.owner) if isinstance(p, TensorSpec) else p for p in self.parameters)
        tensors = tuple(tensor.without_batch(self.owner) for tensor in self.outputs.tensors)
        return Signature(self.owner, parameters, replace(self.outputs, tensors=tensors))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[StaticValue, ...]]:
        """Sorts a request's arguments into tensors (in the order of `inputs`) and statics (in the order of `statics`).

        Raises:
            InvalidInputError: If one is missing, unknown or given twice, or a static has another type; or if a parameter is a
                stream, which only a workflow can pass.
        """
        if self.streams:
            raise InvalidInputError(
                f"{self.owner} takes the stream {self.streams[0].name!r}, which only a workflow can pass; call it in a workflow"
            )
        return self.bind_call(args, kwargs)[:2]

    def bind_call(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[StaticValue, ...], tuple[Any, ...]]:
        """Sorts a call's arguments into tensors, statics and streams, each in the order of their parameters.

        Raises:
            InvalidInputError: If one is missing, unknown or given twice, or a static has another type.
        """
        if len(args) == self.num_by_place and not kwargs:
            return args, (), ()
        if len(args) > len(self.parameters):
            raise InvalidInputError(f"{self.owner} takes {len(self.parameters)} arguments, {len(args)} were given")
        arguments = dict(zip((p.name for p in self.parameters), args, strict=False))
        for name, value in kwargs.items():
            if name in arguments:
                raise InvalidInputError(f"{self.owner}: {name!r} was given twice")
            arguments[name] = value
        tensors: list[Any] = []
        statics: list[StaticValue] = []
        streams: list[Any] = []
        for parameter in self.parameters:
            value = arguments.pop(parameter.name, inspect.Parameter.empty)
            if value is inspect.Parameter.empty:
                value = _default_of(parameter)
            if value is inspect.Parameter.empty:
                unknown = sorted(arguments.keys() - set(self.names()))
                instead = f", and there is no parameter {unknown}" if unknown else ""
                raise InvalidInputError(f"{self.owner}: {parameter.name!r} is missing{instead}; {expectation(self.parameters)}")
            if isinstance(parameter, StaticSpec):
                statics.append(parameter.check(value, self.owner))
            elif isinstance(parameter, StreamSpec):
                streams.append(value)
            else:
                tensors.append(value)
        if arguments:
            raise InvalidInputError(f"{self.owner} has no parameter {sorted(arguments)}; {expectation(self.parameters)}")
        return tuple(tensors), tuple(statics), tuple(streams)

    def names(self) -> list[str]:
        """Returns the names of all parameters, for messages."""
        return [p.name for p in self.parameters]

    def check_inputs(self, tensors: Sequence[TensorRef]) -> None:
        """Checks tensors in the order of `inputs`.

        Raises:
            InvalidInputError: If one does not fit.
        """
        check_all(self.inputs, tensors, self.owner)

    def check_contents(self, arrays: Sequence[Array], max_image_pixels: int = MAX_IMAGE_PIXELS) -> None:
        """Checks what a request's arrays hold, in the order of `inputs`; see `check_content`."""
        for spec, array in zip(self.inputs, arrays, strict=True):
            self.check_content(spec, array, max_image_pixels)

    def check_content(self, spec: TensorSpec, array: Array, max_image_pixels: int = MAX_IMAGE_PIXELS) -> None:
        """Checks what a request's array holds: finite numbers where declared `Finite`, and images.

        Raises:
            InvalidInputError: If it holds NaN or infinity, and where; or no image, or one of too many pixels.
        """
        if spec.is_finite and spec.dtype in FLOATS and not np.isfinite(array).all():
            at = tuple(int(axis[0]) for axis in np.nonzero(~np.isfinite(array)))
            raise InvalidInputError(f"{self.owner}: {spec.name!r} holds {array[at]} at {list(at)}, expected finite numbers")
        if isinstance(spec, ValueSpec):
            spec.check_content(array, self.owner, max_image_pixels)
