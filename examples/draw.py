"""Draws each example's workflow into `docs/img/examples`: boxes are programs, diamonds are decisions.

    python examples/draw.py docs/img/examples

A test compares the pictures with what this draws.
"""

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

COLUMN, ROW, WIDTH, HEIGHT = 168, 78, 124, 44
"""Pixels between the middles of neighbours, and of a box."""


@dataclass(frozen=True)
class Node:
    """What stands at a place, counted in columns and rows from 0. Its text's second line is smaller."""

    column: float
    row: float
    text: str
    kind: str = "program"


Edge = tuple[str, str, str]
"""From which node to which, and what is written there."""

DRAWINGS: dict[str, tuple[dict[str, Node], list[Edge]]] = {
    "digits": (
        {
            "image": Node(0, 0, "image", "value"),
            "small": Node(1, 0, "small\none layer"),
            "sure": Node(2.1, 0, "90 % sure?", "decision"),
            "large": Node(3.3, 1, "large\nconvolutions"),
            "answer": Node(4.4, 0, "digit", "value"),
        },
        [
            ("image", "small", ""),
            ("small", "sure", ""),
            ("sure", "answer", "yes, 61 %"),
            ("sure", "large", "no"),
            ("large", "answer", ""),
        ],
    ),
    "guarded": (
        {
            "text": Node(0, 0.5, "message", "value"),
            "guard": Node(1.1, 0, "guard\nrecurrent"),
            "generate": Node(1.1, 1, "generate\nat the same time"),
            "harmless": Node(2.4, 0, "harmless?", "decision"),
            "answer": Node(3.8, 1, "32 characters", "value"),
            "refusal": Node(3.8, 0, "refusal", "value"),
        },
        [
            ("text", "guard", ""),
            ("text", "generate", ""),
            ("guard", "harmless", ""),
            ("harmless", "answer", "yes"),
            ("harmless", "refusal", "no"),
            ("generate", "answer", ""),
        ],
    ),
    "chat": (
        {
            "question": Node(0, 1, "question", "value"),
            "guard": Node(1.1, 0, "guard\nat the same time"),
            "harmless": Node(2.4, 0, "harmless?", "decision"),
            "prefill": Node(1.1, 1, "prefill\nmakes a cache"),
            "decode": Node(2.4, 1, "decode\na token a turn"),
            "end": Node(3.6, 1, "the end?", "decision"),
            "draft": Node(2.4, 2, "draft\nguesses 4 tokens"),
            "verify": Node(3.6, 2, "verify\nreads all at once"),
            "answer": Node(4.9, 1, "text\npart by part", "value"),
        },
        [
            ("question", "guard", ""),
            ("question", "prefill", ""),
            ("guard", "harmless", ""),
            ("harmless", "answer", "yes"),
            ("prefill", "decode", ""),
            ("decode", "end", ""),
            ("end", "answer", "no"),
            ("prefill", "draft", "or"),
            ("draft", "verify", ""),
            ("verify", "answer", ""),
        ],
    ),
    "router": (
        {
            "text": Node(0, 1, "question", "value"),
            "tokenise": Node(1, 1, "tokenise"),
            "route": Node(2, 0, "route\nMiniLM"),
            "topic": Node(3.1, 0, "topic?", "decision"),
            "expert": Node(3.1, 1, "one of four\nexperts"),
            "answer": Node(4.3, 1, "intent", "value"),
        },
        [
            ("text", "tokenise", ""),
            ("tokenise", "route", ""),
            ("tokenise", "expert", "guessed"),
            ("route", "topic", ""),
            ("topic", "expert", ""),
            ("expert", "answer", ""),
        ],
    ),
    "ocr": (
        {
            "page": Node(0, 0, "page", "value"),
            "detect": Node(1, 0, "detect\nonce a page"),
            "straighten": Node(2, 0, "straighten\neach line"),
            "classify": Node(3, 1, "classify"),
            "turned": Node(4.1, 1, "upside down?", "decision"),
            "recognise": Node(4.1, 0, "recognise\nturned or not"),
            "answer": Node(5.2, 0, "lines", "value"),
        },
        [
            ("page", "detect", ""),
            ("detect", "straighten", ""),
            ("straighten", "classify", ""),
            ("straighten", "recognise", "guessed"),
            ("classify", "turned", ""),
            ("turned", "recognise", ""),
            ("recognise", "answer", ""),
        ],
    ),
    "retrieval": (
        {
            "question": Node(0, 0, "question", "value"),
            "encode": Node(1, 0, "encode\nMiniLM"),
            "search": Node(2, 0, "search\nfaiss"),
            "sure": Node(3.1, 0, "clearly good?", "decision"),
            "rerank": Node(3.1, 1, "rerank\neach of 20"),
            "answer": Node(4.4, 0, "5 passages", "value"),
        },
        [
            ("question", "encode", ""),
            ("encode", "search", ""),
            ("search", "sure", ""),
            ("sure", "answer", "yes, 33 %"),
            ("sure", "rerank", "no"),
            ("encode", "rerank", "tokens"),
            ("rerank", "answer", ""),
        ],
    ),
    "speech": (
        {
            "audio": Node(0, 0, "audio\npieces of 1 s", "value"),
            "hear": Node(1, 0, "hear\nstate goes on"),
            "spectra": Node(2, 0, "spectra\neach segment"),
            "compare": Node(3, 0, "compare\na glance"),
            "alone": Node(4.1, 0, "one person?", "decision"),
            "voice": Node(4.1, 1, "voice\neach 0.4 s"),
            "answer": Node(5.4, 0, "turns\none by one", "value"),
        },
        [
            ("audio", "hear", ""),
            ("hear", "spectra", ""),
            ("spectra", "compare", ""),
            ("compare", "alone", ""),
            ("alone", "answer", "yes"),
            ("alone", "voice", "no"),
            ("spectra", "voice", ""),
            ("voice", "answer", ""),
        ],
    ),
}
_STYLE = """<style>
text { font: 14px sans-serif; text-anchor: middle; fill: #1b2733 } .small { font-size: 11px; fill: #51606f }
.program { fill: #dbeafe; stroke: #2563eb } .decision { fill: #fef3c7; stroke: #d97706 } .value { fill: #f1f5f9; stroke: #94a3b8 }
.edge { stroke: #64748b; stroke-width: 1.5; fill: none } .back { fill: #ffffff }
</style>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
<path d="M0 0 L8 4 L0 8 z" fill="#64748b"/></marker></defs>"""


def draw(nodes: dict[str, Node], edges: list[Edge]) -> str:
    """Returns a picture as SVG."""
    width = COLUMN * max(node.column for node in nodes.values()) + WIDTH + 32
    height = ROW * max(node.row for node in nodes.values()) + HEIGHT + 40
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    lines += [_STYLE, f'<rect class="back" width="{width:.0f}" height="{height:.0f}"/>']
    lines += [_edge(nodes[start], nodes[end], label) for start, end, label in edges]
    lines += [_node(node) for node in nodes.values()]
    return "\n".join([*lines, "</svg>", ""])


def _middle(node: Node) -> tuple[float, float]:
    return 16 + WIDTH / 2 + COLUMN * node.column, 20 + HEIGHT / 2 + ROW * node.row


def _edge(start: Node, end: Node, label: str) -> str:
    """Draws an arrow from side to side, or up or down between nodes of one column."""
    (x0, y0), (x1, y1) = _middle(start), _middle(end)
    if abs(x1 - x0) < WIDTH:
        down = 1 if y1 > y0 else -1
        y0, y1 = y0 + down * HEIGHT / 2, y1 - down * HEIGHT / 2
    else:
        x0, x1 = x0 + WIDTH / 2, x1 - WIDTH / 2
    arrow = f'<path class="edge" d="M{x0:.0f} {y0:.0f} L{x1:.0f} {y1:.0f}" marker-end="url(#arrow)"/>'
    is_upright = x0 == x1
    place = f'x="{(x0 + x1) / 2 + (24 if is_upright else 0):.0f}" y="{(y0 + y1) / 2 - (-4 if is_upright else 6):.0f}"'
    return arrow + (f'<text class="small" {place}>{escape(label)}</text>' if label else "")


def _node(node: Node) -> str:
    """Draws a box, or a diamond for a decision, with its text."""
    x, y = _middle(node)
    w, h = WIDTH / 2, HEIGHT / 2
    if node.kind == "decision":
        sides = f"M{x - w:.0f} {y:.0f} L{x:.0f} {y - h - 4:.0f} L{x + w:.0f} {y:.0f} L{x:.0f} {y + h + 4:.0f} z"
        shape = f'<path class="decision" d="{sides}"/>'
    else:
        corner = 20 if node.kind == "value" else 6
        shape = f'<rect class="{node.kind}" x="{x - w:.0f}" y="{y - h:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="{corner}"/>'
    first, _, second = node.text.partition("\n")
    text = f'<text x="{x:.0f}" y="{y + (-2 if second else 5):.0f}">{escape(first)}</text>'
    return shape + text + (f'<text class="small" x="{x:.0f}" y="{y + 14:.0f}">{escape(second)}</text>' if second else "")


def main() -> None:
    """Writes the pictures."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in DRAWINGS.items():
        (folder / f"{name}.svg").write_text(draw(*drawing))


if __name__ == "__main__":
    main()
