"""A program that logs as users' code does."""

import logging

import numpy as np
from jaxtyping import Float

import dyorc

_log = logging.getLogger("users")


@dyorc.program
def talk(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    _log.info("talked")
    _log.debug("whispered")
    return x
