"""A workflow of NumPy alone, for Pythons and systems that have no torch. Its program changes its inputs in place."""

import numpy as np
import numpy.typing as npt
from jaxtyping import Float

import dyorc


@dyorc.program(max_batch_size=4)
class Scale:
    """Adds one, then multiplies by a factor."""

    def __init__(self) -> None:
        self.factor = np.float32(2)

    def __call__(self, image: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        image += 1
        return image * self.factor


scale = Scale()


@dyorc.workflow
async def scaled(image: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Scales an image; twice if that makes it large."""
    first = scale(image)
    if await dyorc.when(first, lambda values: values.max() > 10):
        return scale(first)
    return first


def expected(image: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Returns what the workflow answers."""
    first = (image + 1) * np.float32(2)
    return (first + 1) * np.float32(2) if first.max() > 10 else first
