"""The history of one request, as a line of JSON: its inputs, its calls with their results, its decisions, its answer.

A tensor is known by where it comes from: an input, an output of a call, or a constant of the workflow's code. So a large result
that the workflow only passes on needs neither bytes nor a digest.
"""

import hashlib
from collections.abc import Hashable, Sequence
from types import EllipsisType
from typing import Any, TypeAlias

import msgspec
import numpy as np

from dyorc.authoring.exact_values import Exact, exact
from dyorc.authoring.signature import StaticValue
from dyorc.core.arrays import Array, dtype_of, numpy_dtype
from dyorc.core.tensor import DType, Index
from dyorc.protocol.raw import decode_bytes, encode_bytes

FORMAT = 1
"""Of the lines; a reader refuses others."""
INPUT, CONSTANT = -1, -2
"""In place of a call's number: an input of the request, a constant of the workflow's code."""
WHOLE = -1
"""In place of a part's index: its call has one result."""
ROOT = -1
"""In place of a nested workflow's number: the request's own."""

IndexJson: TypeAlias = list[Any]


class KeptTensor(msgspec.Struct, omit_defaults=True, frozen=True):
    """A tensor of a history.

    Attributes:
        dtype: By its name in the Open Inference Protocol.
        data: Its bytes in C order; elements of BYTES each after a length of 4 bytes. None: only its type and shape are kept.
        digest: Of its type, shape and bytes, if these may not be kept.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = None
    digest: str = ""

    @classmethod
    def of(cls, array: Array, *, max_bytes: int, is_redacted: bool = False, needs_digest: bool = False) -> "KeptTensor":
        """Returns an array as a history keeps it: a larger one without its bytes, a redacted one with their digest.

        Args:
            needs_digest: Whether a larger one has a digest, too. About 1 ms per MB.
        """
        dtype = dtype_of(array)
        if not is_redacted and array.nbytes <= max_bytes:
            data = encode_bytes(array) if dtype is DType.BYTES else array.tobytes()
            if len(data) <= max_bytes:
                return cls(dtype, array.shape, data)
        has_digest = needs_digest or (is_redacted and array.nbytes <= max_bytes)
        return cls(dtype, array.shape, digest=digest_of(array) if has_digest else "")

    def array(self) -> Array | None:
        """Returns the array; None if its bytes are not there.

        Raises:
            ValueError: If the bytes do not fit the type and shape.
        """
        if self.data is None:
            return None
        dtype = DType(self.dtype)
        if dtype is DType.BYTES:
            return decode_bytes(self.data, self.shape)
        return np.frombuffer(self.data, numpy_dtype(dtype)).reshape(self.shape)


class TensorSource(msgspec.Struct, array_like=True, frozen=True):
    """Where a tensor comes from.

    Attributes:
        call: Its call's place in `RequestHistory.calls`, or `INPUT`, or `CONSTANT`.
        field: Which output of the call, which input of the request, or its place in `RequestHistory.constants`.
        views: Indices that the workflow applied to it, as `json_of_index` writes them.
        part: The part of the call's stream that it belongs to; `WHOLE` if its program does not yield.
    """

    call: int
    field: int
    views: tuple[IndexJson, ...] = ()
    part: int = WHOLE


class ReadStream(msgspec.Struct, omit_defaults=True, frozen=True):
    """A stream that was passed to a call, as far as that has read it.

    Attributes:
        parts: Where the tensors of each part come from.
        is_ended: Whether these are all, and the call was told so. It need not have looked.
        error: Type and text of the error with which the stream ended; empty without.
    """

    parts: tuple[tuple[TensorSource, ...], ...] = ()
    is_ended: bool = False
    error: tuple[str, ...] = ()


class HistoryCall(msgspec.Struct, omit_defaults=True):
    """A call of a program.

    Attributes:
        program: Its name in the workflow's code.
        arguments: Its tensors.
        statics: A digest of its static parameters; empty without any.
        outputs: None if it had no result when the request ended, or has failed. Empty for a program that has yielded all of it.
        streams: What it has read of the streams that were passed to it, in the order of its program's parameters.
        parts: What it has yielded; None if its program does not yield.
        error: Type and text of what its program raised; without the type, an input of the request could not be read. Empty: it
            did not fail.
        is_effect: Whether its program has an effect (``pure=False``), so that nothing may run it again.
        workflow: The run of a nested workflow that made it, as its place in `RequestHistory.nested`; or `ROOT`.
        results: The nested runs whose results are among its arguments. If one was cut, these arguments are missing.
        is_ahead: Whether it may have been made only because a workflow that yields ran ahead of those who read it. How far it
            comes before nobody reads it any longer is a matter of time.
        queue_ms: How long it waited for a replica.
        compute_ms: How long its batch took after that.
    """

    program: str
    arguments: tuple[TensorSource, ...]
    statics: str = ""
    outputs: tuple[KeptTensor, ...] | None = None
    streams: tuple[ReadStream, ...] = ()
    parts: tuple[tuple[KeptTensor, ...], ...] | None = None
    error: tuple[str, ...] = ()
    is_effect: bool = False
    workflow: int = ROOT
    results: tuple[int, ...] = ()
    is_ahead: bool = False
    queue_ms: float = 0.0
    compute_ms: float = 0.0


class NestedRun(msgspec.Struct, omit_defaults=True, frozen=True):
    """A run of a workflow that another one called.

    Attributes:
        workflow: Its name.
        arguments: Its tensors.
        statics: See `HistoryCall`.
        caller: The run that called it, as its place in `RequestHistory.nested`; or `ROOT`.
        is_cut: Whether it was ended on its way, since nothing needed it any longer. How far it came is a matter of time.
    """

    workflow: str
    arguments: tuple[TensorSource, ...]
    statics: str = ""
    caller: int = ROOT
    is_cut: bool = False


class HistoryDecision(msgspec.Struct, omit_defaults=True):
    """A decision that was taken.

    Attributes:
        site: Where it stands in the workflow's code.
        kind: ``when`` or ``choose``.
        subject: What it looked at.
        outcome: As text; of an object that has no lasting text, its type.
        workflow, is_ahead: See `HistoryCall`.
    """

    site: str
    kind: str
    subject: tuple[TensorSource, ...]
    outcome: str
    workflow: int = ROOT
    is_ahead: bool = False


class RequestHistory(msgspec.Struct, omit_defaults=True):
    """The history of a request.

    Attributes:
        request_id: As its client knows it.
        workflow: Its name, without the version.
        version: The name of the version that answered it. Another server may give it to other code.
        code: A short digest of that version's code; empty where that is unknown.
        at_s: When it ended, in Unix time.
        duration_ms: From its arrival at the engine to its answer.
        inputs: Its tensors by name, in the order of the workflow's parameters.
        statics: Its other parameters, by name.
        defaults: Names of the inputs and parameters that have the values of their defaults. Whether their clients sent them is
            unknown; in a replay they have the defaults of the other version.
        redacted: Names of the inputs and parameters whose values are missing.
        unkept: Names of the parameters that were too large to be kept.
        headers: Those that its code could see.
        outputs: The names of its outputs; empty where they are unknown.
        calls: In the order of the journal; those of a workflow that it called stand where that was called.
        nested: The runs of workflows that it called, in the same order; callers come first.
        answer: Empty if it failed, or answers in parts.
        parts: What it has answered in parts; None if it answers at once.
        error: Code and text of its error; empty: it was answered.
        refusal: Why it cannot be replayed; empty: it can.
    """

    request_id: str
    workflow: str
    version: str
    at_s: float
    duration_ms: float
    inputs: dict[str, KeptTensor] = {}
    statics: dict[str, StaticValue] = {}
    defaults: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()
    unkept: tuple[str, ...] = ()
    tenant: str = ""
    priority: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    outputs: tuple[str, ...] = ()
    calls: list[HistoryCall] = []
    nested: list[NestedRun] = []
    decisions: list[HistoryDecision] = []
    constants: list[KeptTensor] = []
    answer: tuple[TensorSource, ...] = ()
    parts: tuple[tuple[TensorSource, ...], ...] | None = None
    error: tuple[str, ...] = ()
    refusal: str = ""
    format: int = 0
    code: str = ""


class HistoryHead(msgspec.Struct, frozen=True):
    """Whose history a line is: all that has to be read of it to know whether it counts. See `RequestHistory`."""

    workflow: str
    version: str
    at_s: float
    format: int = 0
    code: str = ""


def digest_of(array: Array) -> str:
    """Returns a digest of an array's type, shape and bytes. Equal for arrays that are equal bit by bit."""
    digest = hashlib.blake2b(f"{dtype_of(array)} {array.shape} ".encode(), digest_size=16)
    digest.update(encode_bytes(array) if array.dtype == object else array.tobytes())
    return digest.hexdigest()


def digest_of_statics(statics: Sequence[StaticValue]) -> str:
    """Returns a digest of static parameters; empty without any."""
    if not statics:
        return ""
    return hashlib.blake2b(repr(tuple(statics)).encode(errors="surrogatepass"), digest_size=16).hexdigest()


def text_of_outcome(outcome: Hashable) -> str:
    """Returns the outcome of a decision as a text that another process writes alike."""
    key = exact(outcome)
    text = repr(key)
    if isinstance(key, Exact) and (not key.is_immutable or " at 0x" in text):
        return f"a {type(key.value).__name__}"
    return text


def json_of_index(index: Index) -> IndexJson:
    """Returns an index as JSON: a slice as a list of three, ``...`` as a text."""
    return [_json_of_item(item) for item in index]


def _json_of_item(item: int | slice | EllipsisType | None) -> Any:
    if isinstance(item, slice):
        return [item.start, item.stop, item.step]
    return "..." if item is Ellipsis else item


def index_of_json(items: IndexJson) -> Index:
    """Undoes `json_of_index`."""
    return tuple([slice(*item) if isinstance(item, list) else ... if item == "..." else item for item in items])
