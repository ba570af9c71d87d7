"""What a call costs: a number that a program declares as a function of its inputs' shapes. Batches have a limit of the sum."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from dyorc.authoring.batching import BatchKeys
from dyorc.authoring.signature import Signature, StaticValue
from dyorc.core.tensor import DType, Shape, TensorRef
from dyorc.errors import DefinitionError, ProgramError, bounded, text_of, type_name


class ShapedInput(NamedTuple):
    """An input as the function sees it that computes a call's cost.

    Attributes:
        shape: After padding, without the dimension "batch".
    """

    shape: Shape
    dtype: DType


class CallCost:
    """Computes the cost of a program's calls. Calls of one batch key cost the same, since their shapes and parameters are equal.

    Args:
        program: Its name.
        function: What the user declared, which takes some of the inputs by name.
        names: The inputs that it takes.
    """

    def __init__(
        self, program: str, function: Callable[..., float], names: frozenset[str], signature: Signature, batch_keys: BatchKeys
    ) -> None:
        self._program = program
        self._function = function
        self._tensors = [(at, spec.name, spec.dtype) for at, spec in enumerate(signature.inputs) if spec.name in names]
        self._statics = [(at, spec.name) for at, spec in enumerate(signature.statics) if spec.name in names]
        self._batch_keys = batch_keys

    @classmethod
    def of(cls, program: str, function: Callable[..., float] | None, signature: Signature, batch_keys: BatchKeys) -> Self | None:
        """Checks which inputs a cost function takes. Returns None without such a function.

        Raises:
            DefinitionError: If it takes something that the program does not.
        """
        if function is None:
            return None
        known = {spec.name for spec in (*signature.inputs, *signature.statics)}
        return cls(program, function, _names_of(f"program {program!r}: cost", function, known), signature, batch_keys)

    def compute(self, tensors: Sequence[TensorRef], statics: Sequence[StaticValue]) -> float:
        """Returns the cost of a call whose inputs were checked.

        Raises:
            ProgramError: If the function raises anything, or returns anything but a finite number of at least 0.
        """
        inputs: dict[str, Any] = {
            name: ShapedInput(self._batch_keys.padded_shape(at, tensors[at].shape), dtype) for at, name, dtype in self._tensors
        }
        inputs |= {name: statics[at] for at, name in self._statics}
        try:
            value: Any = self._function(**inputs)
            cost = math.nan if isinstance(value, bool | str | bytes) else float(value)
            shown = "" if 0 <= cost < math.inf else bounded(repr(value))
        except BaseException as error:  # no error of user code may end the engine
            text = f"the cost of a call could not be computed: {text_of(error)}"
            raise ProgramError(self._program, type_name(error), text) from error
        if shown:
            expected = "expected a finite number of at least 0 (no bool)"
            raise ProgramError(self._program, "ValueError", f"the cost of a call is {shown}, {expected}")
        return cost


def _names_of(owner: str, function: Callable[..., float], known: set[str]) -> frozenset[str]:
    """Returns the inputs that a cost function takes."""
    if inspect.iscoroutinefunction(function):
        raise DefinitionError(f"{owner} is an async function, expected one that returns a number")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise DefinitionError(f"{owner} is {function!r}, whose parameters are unknown; expected a function of its own") from None
    names: set[str] = set()
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise DefinitionError(f"{owner} takes {parameter}, expected inputs by their names: {sorted(known)}")
        if parameter.name in known:
            names.add(parameter.name)
        elif parameter.default is parameter.empty:
            raise DefinitionError(f"{owner} takes {parameter.name!r}, which the program does not; it takes {sorted(known)}")
    return frozenset(names)
