"""Optical character recognition: finds the text lines of a page, turns those that stand on their head, and reads them.

Each line is a small workflow of its own, so the lines of all pages in flight advance side by side and share batches:

    page -> detect -> for each line: straighten -> classify -> (turn) -> recognise -> text, score, box
"""

from typing import TypedDict

import numpy as np
from jaxtyping import Float, UInt8
from ocr_detection import find_lines, fit_page
from ocr_lines import LINE_WIDTHS, bounds, cut_middle, straighten_line
from ocr_models import DETECTION_MODEL, ORIENTATION_MODEL, RECOGNITION_MODEL, as_model_input, load_model, run_model
from ocr_recognition import decode, read_alphabet

import dyorc

MIN_TURN_PROBABILITY = 0.8  # from which a line counts as upside down
MIN_SCORE = 0.5  # a line read with less certainty is left out


class Line(TypedDict):
    """What `recognise` reads in each line of a batch: UTF-8 text, and the mean probability of its characters."""

    text: dyorc.Bytes[np.ndarray, " batch"]
    score: Float[np.ndarray, " batch"]


class TextLine(TypedDict):
    """One line's UTF-8 text, and the mean probability of its characters."""

    text: dyorc.Bytes[np.ndarray, ""]
    score: Float[np.ndarray, ""]


class Page(TypedDict):
    """The lines of a page in reading order: UTF-8 text, corners as x, y in pixels (clockwise from top left), score."""

    text: dyorc.Bytes[np.ndarray, " lines"]
    boxes: Float[np.ndarray, "lines 4 2"]
    score: Float[np.ndarray, " lines"]


@dyorc.program(batched=False)
class Detect:
    """Finds the corners of each text line of an RGB page, in reading order."""

    def __init__(self) -> None:
        self.model = load_model(DETECTION_MODEL, dyorc.num_threads())

    def __call__(self, page: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "lines 4 2"]:
        height, width = page.shape[:2]
        if not page.size:
            return np.zeros((0, 4, 2), np.float32)
        probability = run_model(self.model, as_model_input(fit_page(page))[np.newaxis])
        return find_lines(probability[0, 0], height, width)


@dyorc.program(batched=False)
class Straighten:
    """Makes the line inside a quad level and 48 pixels high, ready for the models."""

    def __call__(
        self, crop: UInt8[np.ndarray, "height width 3"], quad: Float[np.ndarray, "4 2"]
    ) -> Float[np.ndarray, "3 48 line_width"]:
        return straighten_line(crop, quad)


@dyorc.program(max_batch_size=8, pad=dyorc.pad(width=LINE_WIDTHS))
class Classify:
    """Estimates how likely it is that a line stands upright, and that it stands upside down."""

    def __init__(self) -> None:
        self.model = load_model(ORIENTATION_MODEL, dyorc.num_threads())

    def __call__(self, line: Float[np.ndarray, "batch 3 48 width"]) -> Float[np.ndarray, "batch 2"]:
        return run_model(self.model, np.stack([cut_middle(each) for each in line]))


@dyorc.program(max_batch_size=8, pad=dyorc.pad(width=LINE_WIDTHS))
class Recognise:
    """Reads the text of each line, and says how sure the model is of it."""

    def __init__(self) -> None:
        self.model = load_model(RECOGNITION_MODEL, dyorc.num_threads())
        self.alphabet = read_alphabet(self.model)

    def __call__(self, line: Float[np.ndarray, "batch 3 48 width"]) -> Line:
        decoded = [decode(each, self.alphabet) for each in run_model(self.model, line)]
        return {
            "text": np.array([text.encode() for text, _ in decoded], object),
            "score": np.array([score for _, score in decoded], np.float32),
        }


detect = Detect()
straighten = Straighten()
classify = Classify()
recognise = Recognise()


def is_upside_down(probabilities: Float[np.ndarray, "2"]) -> bool:
    """Returns whether to turn a line, from what `classify` says of it."""
    return bool(probabilities[1] > MIN_TURN_PROBABILITY)


@dyorc.workflow
async def read_line(crop: UInt8[np.ndarray, "height width 3"], quad: Float[np.ndarray, "4 2"]) -> TextLine:
    """Reads the line inside `quad`, whichever way up it stands."""
    line = straighten(crop, quad)
    if await dyorc.when(classify(line), is_upside_down):
        line = line[:, ::-1, ::-1]
    return recognise(line)


@dyorc.workflow
async def ocr(page: UInt8[np.ndarray, "height width 3"]) -> Page:
    """Reads every text line of an RGB page."""
    quads = await detect(page)
    refs = []
    for quad in quads:
        x0, y0, x1, y1 = bounds(quad)
        refs.append(read_line(page[y0:y1, x0:x1], quad - np.array([x0, y0], np.float32)))
    lines = await dyorc.gather(*refs)
    read = [at for at, line in enumerate(lines) if line["score"] >= MIN_SCORE]
    return {
        "text": np.array([lines[at]["text"] for at in read], object),
        "boxes": quads[read],
        "score": np.array([lines[at]["score"] for at in read], np.float32),
    }
