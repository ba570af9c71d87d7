"""Small pieces of SVG. Colours are the page's CSS variables, so that a picture works in light and dark; all text is escaped."""

import re
from collections.abc import Iterable, Sequence
from html import escape

NUM_COLOURS = 8
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2", "9 3 2 3 2 3")
_UNPRINTABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_RADIUS = 3.6
_FONT_PX = 12
_CHAR_PX = 6.9
"""A generous mean width of a label's letter, since text is not measured here."""


def element(tag: str, *content: str, **attributes: object) -> str:
    """Returns an element. `content` is SVG already; attributes are escaped, underscores in their names become dashes, and None
    leaves one out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_attribute(value), quote=True)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{''.join(content)}</{tag}>" if content else f"<{tag}{written}/>"


def text(label: str, x: float, y: float, *, anchor: str = "start", class_: str = "label", turned: bool = False) -> str:
    """Returns a label, escaped."""
    turn = f"rotate(-90 {_attribute(x)} {_attribute(y)})" if turned else None
    return element("text", escape(printable(label)), x=x, y=y, text_anchor=anchor, class_=class_, transform=turn)


def title(label: str) -> str:
    """Returns an element's title, which a resting pointer shows and a screen reader reads."""
    return element("title", escape(printable(label)))


def printable(label: str) -> str:
    """Removes control characters that XML cannot express."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", label)


def colour(style: int) -> str:
    """Returns the colour of a series by its number. After eight, the colours repeat with other shapes and dashes."""
    return f"var(--s{style % NUM_COLOURS})"


def dash(style: int) -> str:
    """Returns the dashes of a series."""
    return _DASHES[_shape(style)]


def _shape(style: int) -> int:
    return (style + style // NUM_COLOURS) % NUM_COLOURS


def line(points: Sequence[tuple[float, float]], style: int, *, dashes: str = "", label: str = "") -> str:
    """Returns a line through points."""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return element(
        "path",
        title(label),
        d=path,
        fill="none",
        stroke=colour(style),
        stroke_width=2,
        stroke_dasharray=dashes or None,
        stroke_linejoin="round",
    )


def marker(x: float, y: float, style: int, label: str = "") -> str:
    """Returns a point of a series, whose shape tells series apart where colours do not."""
    r = _RADIUS
    about = title(label) if label else ""
    drawn = {"fill": colour(style), "stroke": "var(--paper)", "stroke_width": 1}
    shapes: tuple[list[tuple[float, float]], ...] = (
        [],
        [(-r, -r), (r, -r), (r, r), (-r, r)],
        [(0, -1.3 * r), (1.2 * r, r), (-1.2 * r, r)],
        [(0, -1.4 * r), (1.4 * r, 0), (0, 1.4 * r), (-1.4 * r, 0)],
        [(0, 1.3 * r), (1.2 * r, -r), (-1.2 * r, -r)],
        [(-1.6 * r, -0.6 * r), (1.6 * r, -0.6 * r), (1.6 * r, 0.6 * r), (-1.6 * r, 0.6 * r)],
        [(-0.6 * r, -1.6 * r), (0.6 * r, -1.6 * r), (0.6 * r, 1.6 * r), (-0.6 * r, 1.6 * r)],
        [(-1.3 * r, 0), (1.2 * r, -1.2 * r), (0.5 * r, 0), (1.2 * r, 1.2 * r)],
    )
    shape = shapes[_shape(style)]
    if not shape:
        return element("circle", about, cx=x, cy=y, r=r, **drawn)
    return element("polygon", about, points=" ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shape), **drawn)


def bar(x: float, y: float, width: float, height: float, style: int, label: str) -> str:
    """Returns a bar, given its upper left corner."""
    return element("rect", title(label), x=x, y=y, width=width, height=height, fill=colour(style), class_="bar")


def legend(entries: Sequence[tuple[str, int]], width: float, *, dashes: bool = False, marks: bool = True) -> tuple[str, float]:
    """Returns names and their signs in as many rows as they need, and the height of that. Long names are cut; their titles are
    not."""
    drawn: list[str] = []
    x, y = 0.0, 10.0
    for name, style in entries:
        shown = shorten(name, 40)
        takes = 34 + text_px(shown) + 18
        if x and x + takes > width:
            x, y = 0.0, y + 20
        if marks:
            drawn += [
                line([(x, y), (x + 26, y)], style, dashes=dash(style) if dashes else "", label=name),
                marker(x + 13, y, style),
            ]
        else:
            drawn.append(bar(x + 6, y - 6, 16, 12, style, name))
        drawn.append(element("g", title(name), text(shown, x + 34, y + 4)))
        x += takes
    return "".join(drawn), y + 14


def shorten(label: str, max_chars: int) -> str:
    """Returns a label of at most `max_chars` letters: its beginning, and its end, which often holds a rate."""
    if len(label) <= max_chars:
        return label
    end = min(10, max_chars // 3)
    return f"{label[: max_chars - end - 1]}…{label[len(label) - end :]}"


def text_px(label: str) -> float:
    """Returns about how wide a label is."""
    return _CHAR_PX * len(label)


def picture(name: str, description: str, content: Iterable[str], width: float, height: float, *, style: str = "") -> str:
    """Returns a whole SVG image, with a name for those who cannot see it. `style` is CSS, for an image that is a file of its
    own."""
    return element(
        "svg",
        title(name),
        element("desc", escape(printable(description))),
        element("style", style) if style else "",
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        aria_label=printable(name),
        font_size=_FONT_PX,
    )


def _attribute(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else printable(str(value))
