"""Pieces of a page. All text is escaped here; only arguments called `html` or `svg` are used as they are."""

from collections.abc import Iterable, Sequence
from html import escape

from loadgen.report.style import PAGE
from loadgen.report.svg import element, printable

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Forbids the page to load or run anything, in case something slips through unescaped."""

_MAX_WARNINGS = 8


def as_html(text: object) -> str:
    """Returns text as HTML."""
    return escape(printable(str(text)), quote=True)


def document(heading: str, body: Iterable[str]) -> str:
    """Returns a whole, self-contained page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{as_html(_POLICY)}">'
        f"<title>{as_html(heading)}</title><style>{PAGE}</style></head>\n<body>"
        f"<h1>{as_html(heading)}</h1>\n" + "\n".join(part for part in body if part) + "\n</body></html>\n"
    )


def paragraph(text: str, *, is_soft: bool = False) -> str:
    """Returns a paragraph."""
    return element("p", as_html(text), class_="soft" if is_soft else None)


def section(heading: str, *html: str, level: int = 2) -> str:
    """Returns a heading and what belongs below it; nothing if nothing does."""
    body = "\n".join(part for part in html if part)
    return f"<section><h{level}>{as_html(heading)}</h{level}>\n{body}</section>" if body else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, is_text: bool = False, bad: Iterable[str] = ()) -> str:
    """Returns a table that scrolls sideways if it is too wide; nothing without rows.

    Args:
        is_text: Whether it holds words rather than numbers.
        bad: The columns in which any value except 0 is bad.
    """
    marked = {head.index(name) for name in bad}
    lines = ["".join(_cell(text, at in marked and text not in ("", "0")) for at, text in enumerate(row)) for row in rows]
    if not lines:
        return ""
    names = "".join(f"<th>{as_html(name)}</th>" for name in head)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    class_ = ' class="text"' if is_text else ""
    return f'<div class="scroll"><table{class_}><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>'


def tiles(figures: Iterable[tuple[str, str]]) -> str:
    """Returns the headline figures: each has a name and a value."""
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile">{as_html(name)}<b>{as_html(value)}</b></div>' for name, value in figures)
        + "</div>"
    )


def warning(heading: str, lines: Sequence[str]) -> str:
    """Returns a conspicuous box; nothing without lines."""
    if not lines:
        return ""
    shown = list(lines[:_MAX_WARNINGS])
    if len(lines) > len(shown):
        shown.append(f"and {len(lines) - len(shown)} more")
    entries = "".join(f"<li>{as_html(line)}</li>" for line in shown)
    return f'<div class="warning" role="note"><strong>{as_html(heading)}</strong><ul>{entries}</ul></div>'


def details(summary: str, *html: str) -> str:
    """Returns a part that opens on a click."""
    return f"<details><summary>{as_html(summary)}</summary>{''.join(html)}</details>"


def _cell(text: str, is_bad: bool) -> str:
    return element("td", as_html(text), class_="bad" if is_bad else None) if text else "<td></td>"
