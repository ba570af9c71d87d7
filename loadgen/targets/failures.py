"""Errors as short texts that are the same for errors of one kind, since errors are counted by their text."""

import json
import re

from loadgen.targets.base import RequestFailedError

_MAX_CHARS = 100
_NUMBERS = re.compile(r"\d+")


def plain(text: str) -> str:
    """Returns a text without what differs from request to request: numbers, line breaks, length."""
    short = " ".join(text[: 4 * _MAX_CHARS].split())
    return _NUMBERS.sub("#", short)[:_MAX_CHARS]


def http_failure(status: int, body: bytes) -> RequestFailedError:
    """Returns the error of an answer whose status is not 200: its code if it has one, else its text."""
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if isinstance(content, dict):
        message = content.get("code") or content.get("error") or content.get("detail") or ""
    else:
        message = body[: 4 * _MAX_CHARS].decode("utf-8", "replace")
    text = plain(message) if isinstance(message, str) else ""
    return RequestFailedError(f"HTTP {status}: {text}" if text else f"HTTP {status}")
