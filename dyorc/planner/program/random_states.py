"""The states of random generators that a module may draw from while it is captured: those of Python, NumPy and torch."""

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def random_states_kept() -> Generator[None]:
    """Gives all generators on the CPU the states back that they had, whatever is drawn within."""
    python, numpy = random.getstate(), np.random.get_state()  # the global one is meant
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
