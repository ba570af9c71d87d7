"""The fan-out as a workflow: ``dyorc serve benchmarks/workloads/fanout/app.py:fanout``, from the repository's root."""

from typing import TypedDict

import numpy as np
from jaxtyping import Float, Int32

import dyorc
from benchmarks.devices.program import OPTIONS
from benchmarks.workloads.base import LoadedProgram, Tensors
from benchmarks.workloads.cascade.app import is_confident, large, small
from benchmarks.workloads.fanout.workload import PIECE_WIDTH, WORKLOAD, digits_of


class Pieces(TypedDict):
    """Returns how many pieces each strip of a batch has, and where their windows begin."""

    count: Int32[np.ndarray, " batch"]
    columns: Int32[np.ndarray, "batch 16"]


@dyorc.program(
    max_batch_size=WORKLOAD.programs["find"].max_batch_size,
    pad=dyorc.pad(width=tuple(WORKLOAD.programs["find"].widths)),
    **OPTIONS,
)
class Find:
    """The pieces of a strip."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "find")

    def __call__(self, strip: Float[np.ndarray, "batch 1 8 width"]) -> Pieces:
        outputs: Tensors = self.program.run(strip=strip)
        return {"count": outputs["count"], "columns": outputs["columns"]}


class Answer(TypedDict):
    """Returns the digits from left to right, padded with -1, and how many there are."""

    digits: Int32[np.ndarray, "16"]
    count: Int32[np.ndarray, ""]


find = Find()


@dyorc.workflow
async def fanout(strip: Float[np.ndarray, "1 8 width"]) -> Answer:
    pieces = await find(strip)
    starts = pieces["columns"][: int(pieces["count"])].tolist()
    images = [strip[:, :, at : at + PIECE_WIDTH] for at in starts]
    read = dyorc.map(small, images)
    are_sure = await dyorc.when(read, is_confident)
    unsure = [at for at, is_sure in enumerate(are_sure) if not is_sure]
    for at, again in zip(unsure, dyorc.map(large, [images[at] for at in unsure]), strict=True):
        read[at] = again
    return {"digits": digits_of(await dyorc.gather(*read)), "count": np.array(len(read), np.int32)}
