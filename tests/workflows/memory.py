"""A program that tells what its memory costs."""

import resource

import numpy as np
from jaxtyping import Float, Int64

import dyorc

_NUM_BYTES = 3 * 2**20
"""NumPy asks for huge pages from 4 MiB on."""


@dyorc.program(max_batch_size=1)
def page_faults(x: Float[np.ndarray, "batch 4"]) -> Int64[np.ndarray, "batch 1"]:
    """Returns how many fresh pages this process touches while 36 MiB are taken and freed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    taken = [np.ones(_NUM_BYTES, np.uint8) for _ in range(12)]
    del taken
    return np.full((len(x), 1), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


@dyorc.workflow
async def touched(x: Float[np.ndarray, "4"]) -> Int64[np.ndarray, "1"]:
    """Makes one call of `page_faults`."""
    return page_faults(x)
