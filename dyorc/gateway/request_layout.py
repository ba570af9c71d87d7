"""What requests that differ only in the bytes of their tensors have in common: read and checked once, over any protocol.

A client that sends raw tensors sends the same bytes around them each time: names, types, shapes, sizes, parameters. What follows
from those alone is computed for the first request and kept as a `RequestLayout`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dyorc.core.arrays import Array, address_of
from dyorc.core.tensor import DType, Shape
from dyorc.gateway.catalog import Model
from dyorc.gateway.infer_request import InferRequest

T = TypeVar("T")

_MAX_FORMS = 64


class InputPlace(NamedTuple):
    """Where in a body an input is."""

    dtype: np.dtype[np.generic]
    num_items: int
    start: int
    shape: Shape


class RequestLayout(Generic[T]):
    """What follows from a request's bytes besides its tensors.

    Args:
        encode_head: Returns what all answers with outputs of the same shapes as these have in common, in the protocol's form.

    Attributes:
        model: Whose request it is.
        request: What it says besides the inputs; it has no arrays.
        num_bytes: Of the body.
        places: Of the inputs, in the order of the model's signature.
        raw_outputs: Which outputs it wants, if it wants all of them as they are, in raw bytes; otherwise None.
    """

    __slots__ = ("_encode_head", "_heads", "_is_checked", "model", "num_bytes", "places", "raw_outputs", "request")

    def __init__(
        self,
        model: Model,
        request: InferRequest,
        places: Sequence[InputPlace],
        num_bytes: int,
        encode_head: Callable[[Model, InferRequest, Sequence[Array]], T],
    ) -> None:
        self.model = model
        self.request = request
        self.num_bytes = num_bytes
        self.places = places
        self.raw_outputs = _raw_outputs(model, request)
        self._is_checked = any(spec.is_finite for spec in model.signature.inputs)
        self._encode_head = encode_head
        self._heads: dict[tuple[Shape, ...], T] = {}

    @classmethod
    def of(
        cls, model: Model, request: InferRequest, body: bytes, encode_head: Callable[[Model, InferRequest, Sequence[Array]], T]
    ) -> "RequestLayout[T] | None":
        """Returns the layout of a request whose inputs are all in its body; None if something else in it is unique, too."""
        if request.request_id or request.is_explained or any(wanted.span is not None for wanted in request.outputs):
            return None
        places = _places_of(request.arrays, body)
        return None if places is None else cls(model, replace(request, arrays=()), places, len(body), encode_head)

    def arrays(self, body: bytes) -> list[Array]:
        """Returns the inputs, in the order of the model's signature, as views of a body of `num_bytes` bytes.

        Raises:
            InvalidInputError: If one holds NaN or infinity, and must not.
        """
        arrays: list[Array] = [
            np.frombuffer(body, dtype, num_items, start).reshape(shape) for dtype, num_items, start, shape in self.places
        ]
        if self._is_checked:
            self.model.signature.check_contents(arrays)
        return arrays

    def head(self, outputs: Sequence[int], arrays: Sequence[Array]) -> T:
        """Returns what all answers have in common whose outputs have these shapes.

        Args:
            outputs: The `raw_outputs`.
            arrays: All outputs of the model.
        """
        shapes = tuple([arrays[at].shape for at in outputs])
        head = self._heads.get(shapes)
        if head is None:
            if len(self._heads) >= _MAX_FORMS:
                self._heads.clear()
            head = self._heads[shapes] = self._encode_head(self.model, self.request, arrays)
        return head


def _places_of(arrays: Sequence[Array], body: bytes) -> list[InputPlace] | None:
    """Returns where in a body arrays are; None if one is missing."""
    first = address_of(np.frombuffer(body, np.uint8))
    places: list[InputPlace] = []
    for array in arrays:
        start = address_of(array) - first
        if array.dtype == object or not array.size or not 0 <= start < len(body):
            return None
        places.append(InputPlace(array.dtype, array.size, start, array.shape))
    return places


def _raw_outputs(model: Model, request: InferRequest) -> list[int] | None:
    tensors = model.signature.outputs.tensors
    for wanted in request.outputs:
        if not wanted.is_binary or wanted.num_classes or tensors[wanted.at].dtype is DType.BYTES:
            return None
    return [wanted.at for wanted in request.outputs]
