"""Finds the lines of a small page, turns lines that are upside down, and reads each. The programs of `examples/ocr`.

Unlike in the example, pages are small and not enlarged for the detector, and all lines are padded to one width, so that neither a
line's batch nor the widths beside it can change how it is read.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.workloads.base import Call, LoadedProgram, Program, Tensors, TensorSpec, Workload
from benchmarks.workloads.examples import use_example
from benchmarks.workloads.ocr.pages import draw_page

MAX_LINES = 8
"""More lines than a page has; anything that the detector finds beyond that is dropped."""
LINE_WIDTH = 320
"""In pixels: shorter lines are padded, longer ones squeezed."""
MIN_TURN_PROBABILITY = 0.8
MIN_SCORE = 0.5
_MARGIN = 0.01
"""Pages with a line nearer to a threshold are not sent."""
_SIDE_MULTIPLE = 32
_MAX_BATCH_SIZE = 8

Array = np.ndarray[Any, Any]

_PAGE = TensorSpec(dtype="uint8", shape=(-1, -1, 3))
_QUAD = TensorSpec(dtype="float32", shape=(4, 2))
_LINE = TensorSpec(dtype="float32", shape=(3, 48, -1))


def _detect() -> Callable[..., Tensors]:
    use_example("ocr")
    import cv2
    from ocr_detection import find_lines
    from ocr_models import DETECTION_MODEL, as_model_input, load_model, run_model

    cv2.setNumThreads(1)
    model = load_model(DETECTION_MODEL, 1)

    def run(page: Array) -> Tensors:
        """Takes one page: (1, height, width, 3) -> (1, MAX_LINES, 4, 2), padded with zeros; (1, 1)."""
        height, width = page.shape[1:3]
        sides = [-(-side // _SIDE_MULTIPLE) * _SIDE_MULTIPLE for side in (width, height)]
        probability = run_model(model, as_model_input(cv2.resize(page[0], sides))[np.newaxis])
        lines = find_lines(probability[0, 0], height, width)[:MAX_LINES]
        quads = np.zeros((1, MAX_LINES, 4, 2), np.float32)
        quads[0, : len(lines)] = lines
        return {"quads": quads, "num_lines": np.array([[len(lines)]], np.int64)}

    return run


def _straighten() -> Callable[..., Tensors]:
    use_example("ocr")
    import cv2
    from ocr_lines import LINE_HEIGHT, straighten_line

    cv2.setNumThreads(1)

    def run(crop: Array, quad: Array) -> Tensors:
        """Takes one line: (1, height, width, 3), (1, 4, 2) -> (1, 3, 48, up to LINE_WIDTH)."""
        line = straighten_line(crop[0], quad[0])
        if line.shape[2] > LINE_WIDTH:
            line = cv2.resize(line.transpose(1, 2, 0), (LINE_WIDTH, LINE_HEIGHT)).transpose(2, 0, 1)
        return {"line": np.ascontiguousarray(line[np.newaxis])}

    return run


def _classify() -> Callable[..., Tensors]:
    use_example("ocr")
    from ocr_lines import cut_middle
    from ocr_models import ORIENTATION_MODEL, load_model, run_model

    model = load_model(ORIENTATION_MODEL, 1)

    def run(line: Array) -> Tensors:
        """Shapes: (batch, 3, 48, width) -> (batch, 2): upright, upside down."""
        return {"probabilities": run_model(model, np.stack([cut_middle(each) for each in line]))}

    return run


def _recognise() -> Callable[..., Tensors]:
    use_example("ocr")
    from ocr_models import RECOGNITION_MODEL, load_model, run_model
    from ocr_recognition import decode, read_alphabet

    model = load_model(RECOGNITION_MODEL, 1)
    alphabet = read_alphabet(model)

    def run(line: Array) -> Tensors:
        """Shapes: (batch, 3, 48, width) -> texts (batch, 1) in UTF-8, scores (batch, 1)."""
        decoded = [decode(each, alphabet) for each in run_model(model, line)]
        texts = np.array([text.encode() for text, _ in decoded], object)
        return {"text": texts[:, np.newaxis], "score": np.array([[score] for _, score in decoded], np.float32)}

    return run


async def _read_line(call: Call, page: Array, quad: Array) -> dict[str, Array]:
    from ocr_lines import bounds

    x0, y0, x1, y1 = bounds(quad)
    line = (await call("straighten", crop=page[y0:y1, x0:x1], quad=quad - np.array([x0, y0], np.float32)))["line"]
    turned = await call("classify", line=line)
    if turned["probabilities"][1] > MIN_TURN_PROBABILITY:
        line = np.ascontiguousarray(line[:, ::-1, ::-1])
    return await call("recognise", line=line)


async def _flow(call: Call, inputs: Tensors) -> tuple[dict[str, Array], str]:
    use_example("ocr")
    page = inputs["page"]
    detected = await call("detect", page=page)
    quads = detected["quads"][: int(detected["num_lines"][0])]
    lines = await asyncio.gather(*(_read_line(call, page, quad) for quad in quads))
    read = [at for at, line in enumerate(lines) if line["score"][0] >= MIN_SCORE]
    texts = np.array([bytes(lines[at]["text"][0]) for at in read], object)
    scores = np.array([lines[at]["score"][0] for at in read], np.float32)
    return {"text": texts, "boxes": quads[read], "score": scores}, _branch(len(quads))


def _branch(num_lines: int) -> str:
    return "1 line" if num_lines <= 1 else "2-3 lines" if num_lines <= 3 else "4+ lines"


def _draw(num_requests: int, seed: int) -> list[dict[str, Array]]:
    """Draws pages on which all lines are clear cases."""
    choose = random.Random(seed)
    programs = {name: LoadedProgram(WORKLOAD, name) for name in WORKLOAD.programs}
    drawn: list[dict[str, Array]] = []
    while len(drawn) < num_requests:
        page, _ = draw_page(choose)
        if _is_clear(programs, page):
            drawn.append({"page": page})
    return drawn


def _is_clear(programs: Mapping[str, LoadedProgram], page: Array) -> bool:
    """Whether there are lines, and no threshold is so near that a rounding error could decide."""
    distances: list[float] = []

    async def call(program: str, /, **inputs: Array) -> dict[str, Array]:
        (outputs,) = programs[program].run_items([inputs])
        if program == "classify":
            distances.append(abs(float(outputs["probabilities"][1]) - MIN_TURN_PROBABILITY))
        elif program == "recognise":
            distances.append(abs(float(outputs["score"][0]) - MIN_SCORE))
        return outputs

    asyncio.run(_answer(call, page))
    return bool(distances) and min(distances) > _MARGIN


async def _answer(call: Call, page: Array) -> None:
    await _flow(call, {"page": page})


def _line_program(make: Callable[[], Callable[..., Tensors]], outputs: dict[str, TensorSpec]) -> Program:
    return Program(make=make, inputs={"line": _LINE}, outputs=outputs, max_batch_size=_MAX_BATCH_SIZE, widths=(LINE_WIDTH,))


WORKLOAD = Workload(
    name="ocr",
    summary="three models find the lines of a small page, turn those that are upside down, and read each",
    is_dynamic=True,
    slo_s=1.0,
    inputs={"page": _PAGE},
    outputs={
        "text": TensorSpec(dtype="bytes", shape=(-1,)),
        "boxes": TensorSpec(dtype="float32", shape=(-1, 4, 2)),
        "score": TensorSpec(dtype="float32", shape=(-1,)),
    },
    programs={
        "detect": Program(
            make=_detect,
            inputs={"page": _PAGE},
            outputs={
                "quads": TensorSpec(dtype="float32", shape=(MAX_LINES, 4, 2)),
                "num_lines": TensorSpec(dtype="int64", shape=(1,)),
            },
            max_batch_size=1,
        ),
        "straighten": Program(make=_straighten, inputs={"crop": _PAGE, "quad": _QUAD}, outputs={"line": _LINE}, max_batch_size=1),
        "classify": _line_program(_classify, {"probabilities": TensorSpec(dtype="float32", shape=(2,))}),
        "recognise": _line_program(
            _recognise, {"text": TensorSpec(dtype="bytes", shape=(1,)), "score": TensorSpec(dtype="float32", shape=(1,))}
        ),
    },
    flow=_flow,
    draw=_draw,
    app="benchmarks/workloads/ocr/app.py:ocr",
    tolerance=1e-2,  # of scores; the boxes are whole pixels
    num_drawn=32,
)
