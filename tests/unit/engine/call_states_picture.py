"""Draws docs/img/call-states.svg, and the table of docs/concepts/call-states.md, from the engine's table of a call's states.

python -m tests.unit.engine.call_states_picture
"""

import math
import re
from pathlib import Path

from dyorc.engine.model.program_call import _TRANSITIONS, CallState

ROOT = Path(__file__).parents[3]
PICTURE = ROOT / "docs/img/call-states.svg"
PAGE = ROOT / "docs/concepts/call-states.md"
_PLACES = {
    CallState.WAITING: (100, 170),
    CallState.GUESSED: (340, 70),
    CallState.QUEUED: (340, 270),
    CallState.RUNNING: (580, 170),
    CallState.SETTLED: (850, 70),
    CallState.WITHDRAWN: (850, 330),
}
_WIDTH, _HEIGHT = 110, 40
_BENDS = {
    (CallState.WAITING, CallState.SETTLED): -150,
    (CallState.WAITING, CallState.WITHDRAWN): 130,
    (CallState.GUESSED, CallState.WITHDRAWN): -100,
}
"""By how much an edge bends to the left of its direction; all others bend by 22, so that opposite edges do not overlap."""


def rows() -> str:
    """Returns the lines of the page's table."""
    lines = [
        f"| {number} | {earlier.name} | {later.name} | {cause} |"
        for number, ((earlier, later), cause) in enumerate(_TRANSITIONS.items(), 1)
    ]
    return "\n".join(["| | from | to | because |", "|---|---|---|---|", *lines])


def page(text: str) -> str:
    """Returns the page with its table replaced."""
    return re.sub(r"\| \| from \|.*?(?=\n\n)", lambda _: rows(), text, flags=re.DOTALL)


def svg() -> str:
    """Returns the picture."""
    edges = [_edge(number, *edge) for number, edge in enumerate(_TRANSITIONS, 1)]
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -50 960 460" font-family="sans-serif" font-size="13"',
            'text-anchor="middle">',
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 10 5 0 10z" fill="#555"/></marker></defs>',
            '<rect y="-50" width="960" height="460" fill="#fff"/>',
            *edges,
            *map(_box, CallState),
            "</svg>\n",
        ]
    )


def _box(state: CallState) -> str:
    x, y = _PLACES[state]
    is_final = all(earlier is not state for earlier, _ in _TRANSITIONS)
    fill = "#e8eef7" if not is_final else "#eee"
    return (
        f'<rect x="{x - _WIDTH // 2}" y="{y - _HEIGHT // 2}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
        f'fill="{fill}" stroke="#36c"/>'
        f'<text x="{x}" y="{y + 5}">{state.name}</text>'
    )


def _edge(number: int, earlier: CallState, later: CallState) -> str:
    if earlier is later:
        away = 1 if earlier is CallState.QUEUED else -1
        x, y = _PLACES[earlier][0] - 30, _PLACES[earlier][1] + away * _HEIGHT // 2
        over = y + away * 38
        return _drawn(number, f"M{x} {y}C{x - 14} {over} {x + 34} {over} {x + 20} {y}", x + 10, y + away * 28)
    (x1, y1), (x2, y2) = _PLACES[earlier], _PLACES[later]
    bend, length = _BENDS.get((earlier, later), 22), math.hypot(x2 - x1, y2 - y1)
    across_x, across_y = -(y2 - y1) / length * bend, (x2 - x1) / length * bend
    turn_x, turn_y = (x1 + x2) / 2 + 2 * across_x, (y1 + y2) / 2 + 2 * across_y
    (x1, y1), (x2, y2) = _border(x1, y1, turn_x, turn_y), _border(x2, y2, turn_x, turn_y)
    middle_x, middle_y = (x1 + 2 * turn_x + x2) / 4, (y1 + 2 * turn_y + y2) / 4
    return _drawn(number, f"M{x1:.0f} {y1:.0f}Q{turn_x:.0f} {turn_y:.0f} {x2:.0f} {y2:.0f}", middle_x, middle_y)


def _border(x: float, y: float, towards_x: float, towards_y: float) -> tuple[float, float]:
    """Returns where a line from the centre of a box leaves it."""
    run, rise = towards_x - x, towards_y - y
    scale = min(_WIDTH / 2 / abs(run) if run else math.inf, _HEIGHT / 2 / abs(rise) if rise else math.inf)
    return x + run * scale, y + rise * scale


def _drawn(number: int, path: str, x: float, y: float) -> str:
    return (
        f'<path d="{path}" fill="none" stroke="#555" marker-end="url(#tip)"/>'
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="9" fill="#fff" stroke="#999"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" font-size="11">{number}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(svg())
    PAGE.write_text(page(PAGE.read_text()))
