"""Before and after the detection model: a page made to fit it, its probability map turned into quadrilaterals.

The model (differentiable binarization, "DB") returns, for each pixel, the probability that it lies in the shrunk
core of a text line. Pure functions, called by the program `detect`.

Source: Liao et al., Real-time Scene Text Detection with Differentiable Binarization, AAAI 2020.
"""

import math
from collections.abc import Sequence

import cv2
import numpy as np
from jaxtyping import Float, UInt8

MIN_SHORT_SIDE = 736  # pixels: a smaller page is enlarged, the model misses small print
MAX_LONG_SIDE = 2000  # pixels: bounds the time and memory of one page, and wins over MIN_SHORT_SIDE
SIDE_MULTIPLE = 32  # the model halves the page five times

CORE_THRESHOLD = 0.3  # probability from which a pixel belongs to a core
LINE_THRESHOLD = 0.5  # mean probability from which a core is a line
MIN_CORE_SIDE = 3  # pixels of the probability map: thinner cores are specks
UNSHRINK_RATIO = 1.6  # r' of the paper
MAX_LINES = 1000

# One upright or tilted rectangle, as cv2.minAreaRect gives it: centre, size, angle in degrees.
Rectangle = tuple[Sequence[float], Sequence[float], float]


def fit_page(page: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "fitted_height fitted_width 3"]:
    """Returns the page scaled to sides the model takes; its proportions change by less than one `SIDE_MULTIPLE`."""
    height, width = page.shape[:2]
    scale = max(1.0, MIN_SHORT_SIDE / min(height, width))
    scale = min(scale, MAX_LONG_SIDE / max(height, width))
    fitted_height, fitted_width = (
        max(SIDE_MULTIPLE, round(side * scale / SIDE_MULTIPLE) * SIDE_MULTIPLE) for side in (height, width)
    )
    return cv2.resize(page, (fitted_width, fitted_height))


def find_lines(
    probability: Float[np.ndarray, "fitted_height fitted_width"], page_height: int, page_width: int
) -> Float[np.ndarray, "lines 4 2"]:
    """Returns the text lines of a page, in reading order.

    Returns:
        The corners of each line as x, y in whole pixels of the page: top left, top right, bottom right, bottom left.
    """
    cores = (probability > CORE_THRESHOLD).astype(np.uint8)
    cores = cv2.dilate(cores, np.ones((2, 2), np.uint8))
    outlines, _ = cv2.findContours(cores, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    scale = np.array([page_width / probability.shape[1], page_height / probability.shape[0]])
    limit = np.array([page_width - 1, page_height - 1])
    quads: list[np.ndarray] = []
    for outline in outlines[:MAX_LINES]:
        core = cv2.minAreaRect(outline)
        if min(core[1]) < MIN_CORE_SIDE or mean_inside(probability, core) < LINE_THRESHOLD:
            continue
        quads.append(np.clip(np.round(corners(unshrink(core)) * scale), 0, limit))
    return in_reading_order(np.array(quads, np.float32).reshape(-1, 4, 2))


def unshrink(core: Rectangle) -> Rectangle:
    """Returns the whole line around its core: every side moves out by D' = A' r' / L' (area, ratio, perimeter of the core).

    For a rectangle this is exact: the offset polygon has round corners, but the smallest rectangle around it does not.
    """
    centre, (width, height), angle = core
    distance = width * height * UNSHRINK_RATIO / (2 * (width + height))
    return centre, (width + 2 * distance, height + 2 * distance), angle


def corners(rectangle: Rectangle) -> Float[np.ndarray, "4 2"]:
    """Returns top left, top right, bottom right, bottom left of a rectangle, read with less than 45 degrees of tilt."""
    centre, (width, height), angle = rectangle
    quarter_turns = round(angle / 90)
    if quarter_turns % 2:
        width, height = height, width
    tilt = math.radians(angle - 90 * quarter_turns)
    along = np.array([math.cos(tilt), math.sin(tilt)]) * width / 2
    down = np.array([-math.sin(tilt), math.cos(tilt)]) * height / 2
    return np.array([-along - down, along - down, along + down, down - along]) + centre


def mean_inside(probability: Float[np.ndarray, "height width"], rectangle: Rectangle) -> float:
    """Returns the mean probability of the pixels inside a rectangle."""
    points = corners(rectangle)
    height, width = probability.shape
    x0, y0 = np.clip(np.floor(points.min(axis=0)).astype(int), 0, (width - 1, height - 1))
    x1, y1 = np.clip(np.ceil(points.max(axis=0)).astype(int), 0, (width - 1, height - 1)) + 1
    mask = np.zeros((y1 - y0, x1 - x0), np.uint8)
    cv2.fillPoly(mask, [(points - (x0, y0)).astype(np.int32)], 1)
    return cv2.mean(probability[y0:y1, x0:x1], mask)[0]


def in_reading_order(quads: Float[np.ndarray, "lines 4 2"]) -> Float[np.ndarray, "lines 4 2"]:
    """Sorts rows from top to bottom, each from left to right, on a page as tilted as most of its text.

    A line belongs to the row of the line above it when their middles lie less than half a line apart.
    """
    if len(quads) < 2:
        return quads
    along = (quads[:, 1] - quads[:, 0]).sum(axis=0)
    along /= np.linalg.norm(along)
    down = np.array([-along[1], along[0]])
    middles = quads.mean(axis=1) @ down
    order = np.argsort(middles, kind="stable")
    quads, middles = quads[order], middles[order]
    heights = np.linalg.norm(quads[:, 3] - quads[:, 0], axis=1)
    starts_row = np.diff(middles) >= np.minimum(heights[1:], heights[:-1]) / 2
    rows = np.concatenate([[0], np.cumsum(starts_row)])
    return quads[np.lexsort((quads[:, 0] @ along, rows))]
