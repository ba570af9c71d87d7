"""Draws small printed pages, like receipts, with some lines upside down, in the way of `examples/ocr`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from benchmarks.workloads.examples import use_example

MAX_LINES = 6
_TEXTS: tuple[str, ...] = (
    "Tea 3.20", "Coffee 4.10", "Bread 2.75", "Total 19.90", "Page 12", "Gate B7", "Seat 21A", "Row 9",
    "Monday", "Tuesday", "March 14", "Room 305", "Open", "Closed", "Thank you", "Receipt",
    "Platform 9", "Train 365", "Geneva", "Zurich", "Order 2041", "Paid", "Invoice", "Chapter 7",
    "Apples 1.95", "Milk 1.40", "Soup 6.50", "Table 11", "Welcome", "Exit 4", "Floor 2", "Sunday",
)  # fmt: skip
_FONT_SIZES = (18, 20, 22)
_WIDTH = 320
_MARGIN = 14
_GAP = 14
_TURNED = 0.25


def draw_page(choose: random.Random) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Returns an RGB page, uint8 of shape (height, 320, 3), and its texts from top to bottom. Lengths are in pixels."""
    use_example("ocr")
    from PIL import Image
    from sample_page import INKS, PAPER, draw_line

    texts = choose.sample(_TEXTS, choose.randint(1, MAX_LINES))
    lines = [draw_line(text, choose.choice(_FONT_SIZES), choose.choice(INKS)) for text in texts]
    lines = [line.transpose(Image.Transpose.ROTATE_180) if choose.random() < _TURNED else line for line in lines]
    page = Image.new("RGB", (_WIDTH, 2 * _MARGIN - _GAP + sum(line.height + _GAP for line in lines)), PAPER)
    y = _MARGIN
    for line in lines:
        page.paste(line, (choose.randint(_MARGIN, _WIDTH - _MARGIN - line.width), y))
        y += line.height + _GAP
    return np.asarray(page), texts
