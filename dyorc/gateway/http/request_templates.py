"""What equal requests have in common: the JSON in front of binary tensors, read and checked once.

A client that sends raw tensors sends the same JSON with each of them: names, types, shapes, sizes, parameters. What follows
from the JSON alone is computed for the first request and kept as a `RequestTemplate`, under the JSON's bytes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dyorc.core.arrays import Array, address_of
from dyorc.core.tensor import DType, Shape
from dyorc.gateway.catalog import Catalog, Model
from dyorc.gateway.codec.json_outputs import encode_response
from dyorc.gateway.http.inference_answers import answer_lines
from dyorc.gateway.infer_request import InferRequest
from dyorc.models.offers import ModelKey

_MAX_TEMPLATES = 256
"""Of each model: clients whose JSON always differs must not fill the memory."""
_MAX_JSON_BYTES = 4096
_MAX_FORMS = 64


class _Place(NamedTuple):
    """Where in a body an input is."""

    dtype: np.dtype[np.generic]
    num_items: int
    start: int
    shape: Shape


class _AnswerHead(NamedTuple):
    """What all answers with outputs of the same shapes have in common."""

    lines: bytes
    json: bytes


class RequestTemplate:
    """What follows from a request's JSON.

    Attributes:
        model: Whose request it is.
        request: What the JSON says besides the inputs; it has no arrays.
        num_bytes: Of the body, with the JSON.
    """

    __slots__ = ("_forms", "_is_checked", "_places", "_wanted", "model", "num_bytes", "request")

    def __init__(self, model: Model, request: InferRequest, places: Sequence[_Place], num_bytes: int) -> None:
        self.model = model
        self.request = request
        self.num_bytes = num_bytes
        self._places = places
        self._is_checked = any(spec.is_finite for spec in model.signature.inputs)
        self._wanted = _raw_outputs(model, request)
        self._forms: dict[tuple[Shape, ...], _AnswerHead] = {}

    def arrays(self, body: bytes) -> list[Array]:
        """Returns the inputs, in the order of the model's signature, as views of a body of `num_bytes` bytes.

        Raises:
            InvalidInputError: If one holds NaN or infinity, and must not.
        """
        arrays: list[Array] = [
            np.frombuffer(body, dtype, num_items, start).reshape(shape) for dtype, num_items, start, shape in self._places
        ]
        if self._is_checked:
            self.model.signature.check_contents(arrays)
        return arrays

    def answer(self, arrays: Sequence[Array]) -> tuple[bytes, Sequence[bytes], int] | None:
        """Returns an answer's own headers, its body, and the length of the JSON in it; None if it is not of raw tensors alone."""
        if self._wanted is None:
            return None
        shapes = tuple([arrays[at].shape for at in self._wanted])
        form = self._forms.get(shapes) or self._new_form(arrays, shapes)
        return form.lines, [form.json, *[arrays[at].tobytes() for at in self._wanted]], len(form.json)

    def _new_form(self, arrays: Sequence[Array], shapes: tuple[Shape, ...]) -> _AnswerHead:
        if len(self._forms) >= _MAX_FORMS:
            self._forms.clear()
        parts, json_bytes = encode_response(self.model, self.request.request_id, self.request.outputs, arrays)
        lines = answer_lines(sum(map(len, parts)), json_bytes)
        form = self._forms[shapes] = _AnswerHead(lines, b"".join(parts)[:json_bytes])
        return form


class RequestTemplateCache:
    """The templates of one server.

    Args:
        catalog: Says which models there are: templates of others go, and with them what they hold of their versions.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._templates: dict[ModelKey, dict[bytes, RequestTemplate]] = {}

    def find(self, model: Model, json: bytes, num_bytes: int) -> RequestTemplate | None:
        """Returns the template of requests with this JSON and a body of this length, if there is one."""
        templates = self._templates.get(model.key)
        template = None if templates is None else templates.get(json)
        return template if template is not None and template.num_bytes == num_bytes and template.model is model else None

    def add(self, model: Model, json: bytes, body: bytes, request: InferRequest) -> None:
        """Keeps what follows from the JSON of a request, if its inputs are in its body and nothing in it is unique."""
        if request.request_id or request.is_explained or len(json) > _MAX_JSON_BYTES:
            return
        if any(wanted.span is not None for wanted in request.outputs):
            return
        places = _places_of(request.arrays, body)
        if places is None:
            return
        templates = self._templates.get(model.key)
        if templates is None:
            self._forget_left()
            templates = self._templates[model.key] = {}
        if len(templates) >= _MAX_TEMPLATES:
            templates.clear()
        templates[json] = RequestTemplate(model, replace(request, arrays=()), places, len(body))

    def _forget_left(self) -> None:
        """Forgets versions that have left."""
        self._templates = {key: templates for key, templates in self._templates.items() if self._catalog.offers(key)}


def _places_of(arrays: Sequence[Array], body: bytes) -> list[_Place] | None:
    """Returns where in a body arrays are; None if one is missing."""
    first = address_of(np.frombuffer(body, np.uint8))
    places: list[_Place] = []
    for array in arrays:
        start = address_of(array) - first
        if array.dtype == object or not array.size or not 0 <= start < len(body):
            return None
        places.append(_Place(array.dtype, array.size, start, array.shape))
    return places


def _raw_outputs(model: Model, request: InferRequest) -> list[int] | None:
    """Returns which outputs a request wants, if it wants them as they are, in raw bytes."""
    tensors = model.signature.outputs.tensors
    for wanted in request.outputs:
        if not wanted.is_binary or wanted.num_classes or tensors[wanted.at].dtype is DType.BYTES:
            return None
    return [wanted.at for wanted in request.outputs]
