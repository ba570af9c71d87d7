"""What msgspec raises for bytes that it cannot read."""

import msgspec

DECODE_ERRORS: tuple[type[Exception], ...] = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""It has a class of its own for most; texts that are not UTF-8, and values that are nested too deeply, raise Python's errors."""
