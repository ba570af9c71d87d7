"""Errors as short texts that are the same for errors of one kind, since errors are counted by their text."""

import json
import re

from loadgen.targets.base import RequestFailedError

_MAX_CHARS = 200
_TYPE_OR_NUMBER = re.compile(r"\b((?:FP|BF|U?INT|float|u?int)\d+)\b|\d+")
"""A tensor's type, which says what is wrong, or another number."""


def plain(text: str) -> str:
    """Returns a text without what differs from request to request: numbers (but not those of types), line breaks, length."""
    short = " ".join(text[: 4 * _MAX_CHARS].split())
    return _TYPE_OR_NUMBER.sub(lambda match: match[1] or "#", short)[:_MAX_CHARS]


def http_failure(status: int, body: bytes) -> RequestFailedError:
    """Returns the error of an answer whose status is not 200: its code, if it has one, and its text."""
    text = failure_text(body)
    return RequestFailedError(f"HTTP {status}: {text}" if text else f"HTTP {status}")


def failure_text(body: bytes) -> str:
    """Returns the code and the text of an error as servers write it; empty if there is none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        code, reason = content.get("code"), content.get("error") or content.get("detail") or ""
        message = f"{code}: {reason}" if code and reason else code or reason
    else:
        message = body[: 4 * _MAX_CHARS].decode("utf-8", "replace")
    return plain(message) if isinstance(message, str) else ""
