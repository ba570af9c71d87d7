"""Pictures as files without loss, for programs and for clients alike."""

import io
from typing import Any

from dyorc.errors import InvalidInputError

_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
"""Modes of images that a PNG has without loss; a TIFF has most others."""


def encode_image(image: Any, label: str) -> bytes:
    """Returns a Pillow image as the bytes of a PNG, or of a TIFF if a PNG does not have its mode.

    Raises:
        InvalidInputError: If neither can hold it; names `label`.
    """
    buffer = io.BytesIO()
    is_png = image.mode in _PNG_MODES
    try:
        image.save(buffer, format="PNG", compress_level=1) if is_png else image.save(buffer, format="TIFF")
    except Exception as error:
        raise InvalidInputError(
            f"{label}: an image of mode {image.mode!r} cannot be written as {'PNG' if is_png else 'TIFF'}: {error}; convert it, "
            f"as by image.convert('RGB')"
        ) from None
    return buffer.getvalue()
