"""What equal `ModelInferRequest`s have in common: the bytes around their raw tensors, read and checked once.

Two messages of one length that have the same bytes everywhere but in the tensors of the first are read alike, byte by byte: the
lengths that say where a tensor ends are among those bytes. So nothing has to be parsed to find the tensors of the second.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dyorc.core.arrays import Array
from dyorc.gateway.catalog import Catalog, Model
from dyorc.gateway.grpc.encoding import encode_response
from dyorc.gateway.grpc.wire import framed
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.request_layout import RequestLayout
from dyorc.models.offers import ModelKey

MAX_MESSAGE_BYTES = 64 * 2**10
"""Longer messages are decoded on a thread, or written to shared memory."""
_MAX_FIXED_BYTES = 4096
_MAX_LENGTHS = 256
_MAX_OF_ONE_LENGTH = 8
"""Messages of the same length are compared one by one."""
_MAX_JOINED_BYTES = 64 * 2**10
"""Joining more would keep other threads waiting."""


class MessageTemplate(NamedTuple):
    """What follows from a message's bytes around its tensors.

    Attributes:
        layout: The request's. The head of its answers are the bytes before each output, the first with gRPC's prefix; empty if
            answers are too long to be joined here.
        version: Of the model, if the message names one.
        fixed: The bytes around its tensors, with their places.
    """

    layout: RequestLayout[Sequence[bytes]]
    version: str | None
    fixed: Sequence[tuple[int, bytes]]

    def fits(self, message: bytes) -> bool:
        """Returns whether a message of the same length has the same bytes around its tensors."""
        for start, part in self.fixed:  # noqa: SIM110 (a generator costs more than the comparison)
            if not message.startswith(part, start):
                return False
        return True

    def answer(self, arrays: Sequence[Array]) -> bytes | None:
        """Returns an answer as gRPC frames it; None if it is not of raw tensors alone, or long.

        Args:
            arrays: All outputs of the model.
        """
        outputs = self.layout.raw_outputs
        if outputs is None or not (heads := self.layout.head(outputs, arrays)):
            return None
        if len(outputs) == 1:
            return heads[0] + arrays[outputs[0]].tobytes()
        return b"".join([part for head, at in zip(heads, outputs, strict=True) for part in (head, arrays[at].tobytes())])


def _encode_heads(model: Model, request: InferRequest, arrays: Sequence[Array]) -> Sequence[bytes]:
    parts = encode_response(model, request, arrays)
    if sum(map(len, parts)) > _MAX_JOINED_BYTES or len(parts) == 1:
        return ()
    first, *others = framed(parts)
    # Behind the first part, each output has three: its tag, its length and its bytes.
    heads = [b"".join(others[at : at + 2]) for at in range(0, len(others), 3)]
    return [bytes(first) + heads[0], *heads[1:]]


class MessageTemplateCache:
    """The templates of one server.

    Args:
        catalog: Says which models there are: templates of others go, and with them what they hold of their versions.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._by_length: dict[int, list[MessageTemplate]] = {}
        self._models: set[ModelKey] = set()

    def find(self, message: bytes) -> MessageTemplate | None:
        """Returns the template that a message fits, if there is one."""
        for template in self._by_length.get(len(message), ()):
            if template.fits(message):
                return template
        return None

    def add(self, model: Model, version: str | None, message: bytes, request: InferRequest) -> None:
        """Keeps what follows from a request's message, if its inputs are in there as raw bytes and nothing else is unique."""
        if len(message) > MAX_MESSAGE_BYTES or (layout := RequestLayout.of(model, request, message, _encode_heads)) is None:
            return
        fixed = _fixed_parts(layout, message)
        if sum(len(part) for _, part in fixed) > _MAX_FIXED_BYTES:
            return
        if model.key not in self._models:
            self._forget_left()
            self._models.add(model.key)
        if len(self._by_length) >= _MAX_LENGTHS:
            self._by_length.clear()
        templates = self._by_length.setdefault(len(message), [])
        templates[:] = [template for template in templates if template.fixed != fixed][: _MAX_OF_ONE_LENGTH - 1]
        templates.insert(0, MessageTemplate(layout, version, fixed))

    def _forget_left(self) -> None:
        """Forgets versions that have left."""
        self._models = {key for key in self._models if self._catalog.offers(key)}
        for length, templates in list(self._by_length.items()):
            kept = [template for template in templates if self._catalog.offers(template.layout.model.key)]
            if kept:
                self._by_length[length] = kept
            else:
                del self._by_length[length]


def _fixed_parts(layout: RequestLayout[Sequence[bytes]], message: bytes) -> list[tuple[int, bytes]]:
    """Returns the bytes of a message around its inputs, with their places."""
    spans = sorted((place.start, place.start + place.num_items * place.dtype.itemsize) for place in layout.places)
    starts, ends = [0, *[end for _, end in spans]], [*[start for start, _ in spans], len(message)]
    return [(start, message[start:end]) for start, end in zip(starts, ends, strict=True) if start < end]
