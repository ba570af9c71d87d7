"""The reader as a workflow: ``dyorc serve benchmarks/workloads/ocr/app.py:ocr``, from the repository's root."""

from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float, Int, UInt8

import dyorc
from benchmarks.devices.program import OPTIONS
from benchmarks.workloads.base import LoadedProgram
from benchmarks.workloads.examples import use_example
from benchmarks.workloads.ocr.workload import LINE_WIDTH, MIN_SCORE, MIN_TURN_PROBABILITY, WORKLOAD

use_example("ocr")

from ocr_lines import bounds  # noqa: E402  its folder has to be known first

_MAX_BATCH_SIZE = WORKLOAD.programs["recognise"].max_batch_size


class Found(TypedDict):
    """The corners of a page's lines, padded with zeros."""

    quads: Float[np.ndarray, "8 4 2"]
    num_lines: Int[np.ndarray, "1"]


class Line(TypedDict):
    """What is read in each line of a batch: UTF-8 text and its characters' mean probability."""

    text: dyorc.Bytes[np.ndarray, "batch 1"]
    score: Float[np.ndarray, "batch 1"]


class TextLine(TypedDict):
    """The same for one line."""

    text: dyorc.Bytes[np.ndarray, "1"]
    score: Float[np.ndarray, "1"]


class Page(TypedDict):
    """A page's lines in reading order: texts, corners in pixels, scores."""

    text: dyorc.Bytes[np.ndarray, " lines"]
    boxes: Float[np.ndarray, "lines 4 2"]
    score: Float[np.ndarray, " lines"]


@dyorc.program(batched=False, **OPTIONS)
class Detect:
    """Finds the lines of a page."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "detect")

    def __call__(self, page: UInt8[np.ndarray, "height width 3"]) -> Found:
        outputs = self.program.run(page=page[np.newaxis])
        return {"quads": outputs["quads"][0], "num_lines": outputs["num_lines"][0]}


@dyorc.program(batched=False, **OPTIONS)
class Straighten:
    """Straightens a line and scales it to a height of 48 pixels."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "straighten")

    def __call__(
        self, crop: UInt8[np.ndarray, "height width 3"], quad: Float[np.ndarray, "4 2"]
    ) -> Float[np.ndarray, "3 48 line_width"]:
        return self.program.run(crop=crop[np.newaxis], quad=quad[np.newaxis])["line"][0]


@dyorc.program(max_batch_size=_MAX_BATCH_SIZE, pad=dyorc.pad(width=(LINE_WIDTH,)), **OPTIONS)
class Classify:
    """Tells whether lines are upside down."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "classify")

    def __call__(self, line: Float[np.ndarray, "batch 3 48 width"]) -> Float[np.ndarray, "batch 2"]:
        return self.program.run(line=line)["probabilities"]


@dyorc.program(max_batch_size=_MAX_BATCH_SIZE, pad=dyorc.pad(width=(LINE_WIDTH,)), **OPTIONS)
class Recognise:
    """Reads lines."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "recognise")

    def __call__(self, line: Float[np.ndarray, "batch 3 48 width"]) -> Line:
        outputs = self.program.run(line=line)
        return {"text": outputs["text"], "score": outputs["score"]}


detect = Detect()
straighten = Straighten()
classify = Classify()
recognise = Recognise()


def is_upside_down(probabilities: np.ndarray[Any, Any]) -> bool:
    return bool(probabilities[1] > MIN_TURN_PROBABILITY)


@dyorc.workflow
async def read_line(crop: UInt8[np.ndarray, "height width 3"], quad: Float[np.ndarray, "4 2"]) -> TextLine:
    line = straighten(crop, quad)
    if await dyorc.when(classify(line), is_upside_down):
        line = line[:, ::-1, ::-1]
    return recognise(line)


@dyorc.workflow
async def ocr(page: UInt8[np.ndarray, "height width 3"]) -> Page:
    detected = await detect(page)
    quads = detected["quads"][: int(detected["num_lines"][0])]
    refs = []
    for quad in quads:
        x0, y0, x1, y1 = bounds(quad)
        refs.append(read_line(page[y0:y1, x0:x1], quad - np.array([x0, y0], np.float32)))
    lines = await dyorc.gather(*refs)
    read = [at for at, line in enumerate(lines) if line["score"][0] >= MIN_SCORE]
    return {
        "text": np.array([lines[at]["text"][0] for at in read], object),
        "boxes": quads[read],
        "score": np.array([lines[at]["score"][0] for at in read], np.float32),
    }
