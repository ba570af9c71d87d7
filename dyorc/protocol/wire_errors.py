"""Errors on the wire: how a server writes an error of the tree, and how a client restores it by its code."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from dyorc.errors import DyOrcError, InternalError, ProgramError, TransportError
from dyorc.protocol.header_names import RETRY_AFTER

E = TypeVar("E", bound=DyOrcError)

A_PAGE = "a page of HTML: this is no DyOrc server, or a proxy before it answered"
_MAX_SHOWN_CHARS = 200
_BUSY = frozenset({429, 503})


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of every error on every route. Other servers send only the text.

    Attributes:
        request_id: The request's id in the server's log and records.
        trace_id: The id of the request's trace, if it has one.
    """

    error: str
    code: str = ""
    retryable: bool | None = None
    request_id: str = ""
    trace_id: str = ""


def body_of(error: Exception, request_id: str = "", trace_id: str = "") -> ErrorBody:
    """Returns the form of an error that clients see; a foreign error becomes a plain internal error."""
    if not isinstance(error, DyOrcError):
        error = InternalError("internal error")
    return ErrorBody(str(error), error.code, error.retryable, request_id, trace_id)


error_decoder = msgspec.json.Decoder(ErrorBody)


def _classes_by_code() -> dict[str, type[DyOrcError]]:
    """Returns every class by its code. A parent comes before its children, so a child without its own code does not
    replace it.
    """
    classes: dict[str, type[DyOrcError]] = {}
    waiting: list[type[DyOrcError]] = [DyOrcError]
    for kind in waiting:
        classes.setdefault(kind.code, kind)
        waiting += kind.__subclasses__()
    return classes


_CLASSES = _classes_by_code()


def error_from_body(body: ErrorBody, status: int = 0, retry_after_s: float | None = None) -> DyOrcError:
    """Returns the error that a server raised.

    Args:
        status: Of the answer; 0 if it came another way.
        retry_after_s: When to come back, if the answer said so.
    """
    kind = _CLASSES.get(body.code, DyOrcError)
    # The text is complete as it is; the constructors of some classes would write it anew.
    error = kind.__new__(kind, body.error)
    if isinstance(error, ProgramError):
        error.program, error.error_type, error.message = _program_of(body.error)
    is_retryable = status in _BUSY if body.retryable is None else body.retryable
    attributes = {name: value for name in ("code", "request_id", "trace_id") if (value := getattr(body, name))}
    return _with_note(with_attributes(error, retryable=is_retryable, retry_after_s=retry_after_s, **attributes))


def error_from_answer(status: int, headers: Mapping[str, str], content: memoryview) -> tuple[DyOrcError, bool]:
    """Returns the error in an answer whose status is not 200, and whether it comes from a server of the protocol."""
    try:
        body = error_decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        shown = bytes(content[:_MAX_SHOWN_CHARS]).decode("utf-8", "replace")
        shown = A_PAGE if is_page(headers) else f"{shown!r}, expected JSON with an 'error'"
        error = TransportError(f"the server answered {status} with {shown}")
        return with_attributes(error, retryable=status >= 500, retry_after_s=_retry_after_s(headers)), False
    return error_from_body(body, status, _retry_after_s(headers)), True


def is_page(headers: Mapping[str, str]) -> bool:
    """Returns whether an answer is a page for browsers, which no route of the protocol answers with."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html"


def with_attributes(error: E, **attributes: Any) -> E:
    """Sets attributes on an error in place of its class's, since a server's take precedence. Returns the error."""
    vars(error).update(attributes)
    return error


def _with_note(error: E) -> E:
    """Makes tracebacks show the request."""
    if error.request_id:
        error.add_note(f"request {error.request_id}" + (f", trace {error.trace_id}" if error.trace_id else ""))
    return error


def malformed(text: str) -> TransportError:
    """Returns the error for an answer that cannot be parsed. It is not retryable: the same answer would come again."""
    return with_attributes(TransportError(text), retryable=False)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    value = headers.get(RETRY_AFTER, "").strip()
    # A date is possible, too; DyOrc sends none, and clocks differ.
    return float(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _program_of(text: str) -> tuple[str, str, str]:
    """Returns program, exception and what it said from the text of a `ProgramError`, as far as possible."""
    before, separator, rest = text.partition("' failed: ")
    if not separator or not before.startswith("program '"):
        return "", "", text
    error_type, _, message = rest.partition(": ")
    return before.removeprefix("program '"), error_type, message


def reason_of_json(error: Exception) -> str:
    """Returns why JSON cannot be read, from msgspec's error, which may begin with "JSON is malformed"."""
    return f"JSON is malformed: {str(error).removeprefix('JSON is malformed: ')}"
