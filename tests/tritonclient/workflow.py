"""What the client's tests serve: tensors of any size, of a fixed and of no fixed element size."""

from typing import TypedDict

import numpy as np
from jaxtyping import Float

import dyorc


class Mirrored(TypedDict):
    """What `mirror` gives."""

    raised: Float[np.ndarray, "n"]
    reversed: dyorc.Bytes[np.ndarray, "k"]


@dyorc.program(batched=False)
def raise_all(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """One more, everywhere."""
    return x + 1


@dyorc.program(batched=False)
def reverse_all(texts: dyorc.Bytes[np.ndarray, "k"]) -> dyorc.Bytes[np.ndarray, "k"]:
    """Each text from its end."""
    found = np.empty(len(texts), dtype=object)
    found[:] = [bytes(text)[::-1] for text in texts]
    return found


@dyorc.workflow
async def mirror(x: Float[np.ndarray, "n"], texts: dyorc.Bytes[np.ndarray, "k"]) -> Mirrored:
    """Both programs side by side."""
    return {"raised": raise_all(x), "reversed": reverse_all(texts)}
