"""The files of the page, read once, as they are sent: with their type, their tag, and compressed.

The page is plain modules. Nothing is built: what lies in ``page/`` and ``vendor/`` is what the browser gets.
"""

import base64
import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Other files in the folders, such as licences, are not served."""

START = "index.html"
_INLINE = re.compile(rb"<script type=\"importmap\">(.*?)</script>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UiFile:
    """One file.

    Attributes:
        body: As it is.
        packed: The same, gzipped.
        tag: Its ``ETag``: changes whenever the body does.
        media_type: What it is.
    """

    body: bytes
    packed: bytes
    tag: str
    media_type: str


@cache
def ui_files() -> dict[str, UiFile]:
    """Returns all files by their paths, relative to the page's own."""
    page, vendor = _FOLDER / "page", _FOLDER / "vendor"
    paths = {path.relative_to(page).as_posix(): path for path in sorted(page.rglob("*"))}
    paths |= {path.relative_to(_FOLDER).as_posix(): path for path in sorted(vendor.iterdir())}
    return {name: _read(path) for name, path in paths.items() if path.suffix in _TYPES}


@cache
def policy() -> str:
    """Returns the page's ``Content-Security-Policy``: nothing from elsewhere, and no inline scripts except the map of module
    names, which browsers accept only inline."""
    inline = _INLINE.findall(ui_files()[START].body)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in inline)
    return (
        f"default-src 'self'; script-src 'self' {hashes}; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _read(path: Path) -> UiFile:
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return UiFile(body, gzip.compress(body, mtime=0), tag, _TYPES[path.suffix])
