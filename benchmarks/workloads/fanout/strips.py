"""Draws strips with digits, and finds the digits on them. Needs only NumPy.

A strip is a picture of 8 rows, 0 for paper and 1 for ink, with at least `_MARGIN` blank columns at either end, so that the window
of a piece never leaves the strip. Blank columns after its end, such as padding, do not change what is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_PIECES = 16
WIDTHS = (64, 128, 192, 256)
"""The buckets for widths of strips; the widest strip has 248 columns."""
_PIECE_WIDTH = 8
_MARGIN = 4
_MAX_GAP = 7
_NOISE = 0.1
_PAPER = 0.15
"""Anything lighter than this is noise."""
_MIN_COLUMN_INK = 0.3
_MIN_PIECE_INK = 2.0
_MAX_HOLE = 1
"""The most blank columns inside a digit."""

Picture = np.ndarray[Any, np.dtype[np.float32]]


def draw_strip(digits: Picture, rng: np.random.Generator) -> Picture:
    """Draws digits of shape [n, 8, 8] side by side, with gaps and light noise.

    Returns:
        Shape [1, 8, width].
    """
    parts: list[Picture] = [np.zeros((8, _MARGIN), np.float32)]
    for digit in digits:
        parts += [digit, np.zeros((8, int(rng.integers(2, _MAX_GAP + 1))), np.float32)]
    parts.append(np.zeros((8, _MARGIN), np.float32))
    strip = np.concatenate(parts, axis=1)
    noise = rng.uniform(-_NOISE, _NOISE, strip.shape).astype(np.float32)
    return np.clip(strip + noise, 0, 1)[np.newaxis]


def find_pieces(strip: Picture) -> list[int]:
    """Returns where the windows of a strip's pieces begin, from left to right, at most `MAX_PIECES`. The strip is [8, width]."""
    ink = np.where(strip > _PAPER, strip, 0).sum(axis=0)
    runs = _joined(_runs(ink > _MIN_COLUMN_INK))
    pieces = [(start, end) for start, end in runs if ink[start:end].sum() > _MIN_PIECE_INK]
    last = max(strip.shape[1] - _PIECE_WIDTH, 0)
    return [min(max((start + end) // 2 - _PIECE_WIDTH // 2, 0), last) for start, end in pieces[:MAX_PIECES]]


def _runs(is_inked: np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Returns the first and last column of each run of ink."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_inked, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins runs with small gaps between them to one digit, as long as it fits the window."""
    joined: list[tuple[int, int]] = []
    for start, end in runs:
        if joined and start - joined[-1][1] <= _MAX_HOLE and end - joined[-1][0] <= _PIECE_WIDTH:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
