"""What equal requests have in common: the JSON in front of binary tensors, read and checked once (`request_layout.py`).

Templates are kept under the JSON's bytes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dyorc.core.arrays import Array
from dyorc.gateway.catalog import Catalog, Model
from dyorc.gateway.codec.json_outputs import encode_response
from dyorc.gateway.http.inference_answers import answer_lines
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.request_layout import RequestLayout
from dyorc.models.offers import ModelKey

_MAX_TEMPLATES = 256
"""Of each model: clients whose JSON always differs must not fill the memory."""
_MAX_JSON_BYTES = 4096


class _AnswerHead(NamedTuple):
    """What all answers with outputs of the same shapes have in common."""

    lines: bytes
    json: bytes


class RequestTemplate:
    """What follows from a request's JSON.

    Attributes:
        layout: The request's.
        request: What the JSON says besides the inputs; it has no arrays.
    """

    __slots__ = ("layout", "request")

    def __init__(self, layout: RequestLayout[_AnswerHead]) -> None:
        self.layout = layout
        self.request = layout.request

    def answer(self, arrays: Sequence[Array]) -> tuple[bytes, Sequence[bytes], int] | None:
        """Returns an answer's own headers, its body, and the length of the JSON in it; None if it is not of raw tensors alone."""
        outputs = self.layout.raw_outputs
        if outputs is None:
            return None
        head = self.layout.head(outputs, arrays)
        return head.lines, [head.json, *[arrays[at].tobytes() for at in outputs]], len(head.json)


def _encode_head(model: Model, request: InferRequest, arrays: Sequence[Array]) -> _AnswerHead:
    parts, json_bytes = encode_response(model, request.request_id, request.outputs, arrays)
    return _AnswerHead(answer_lines(sum(map(len, parts)), json_bytes), b"".join(parts)[:json_bytes])


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
        is_same = template is not None and template.layout.num_bytes == num_bytes and template.layout.model is model
        return template if is_same else None

    def add(self, model: Model, json: bytes, body: bytes, request: InferRequest) -> None:
        """Keeps what follows from the JSON of a request, if its inputs are in its body and nothing in it is unique."""
        if len(json) > _MAX_JSON_BYTES or (layout := RequestLayout.of(model, request, body, _encode_head)) is None:
            return
        templates = self._templates.get(model.key)
        if templates is None:
            self._forget_left()
            templates = self._templates[model.key] = {}
        if len(templates) >= _MAX_TEMPLATES:
            templates.clear()
        templates[json] = RequestTemplate(layout)

    def _forget_left(self) -> None:
        """Forgets versions that have left."""
        self._templates = {key: templates for key, templates in self._templates.items() if self._catalog.offers(key)}
