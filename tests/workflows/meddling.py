"""A module that changes whatever belongs to the whole process, and a program that finds its changes."""

import asyncio
import decimal
import gc
import io
import locale
import logging
import os
import random
import signal
import sys
import warnings

import numpy as np
import structlog
import torch
from jaxtyping import Float

import dyorc


async def load() -> float:
    await asyncio.sleep(0)
    return 2.0


class Policy(asyncio.DefaultEventLoopPolicy):
    pass


FACTOR = asyncio.run(load())
asyncio.set_event_loop_policy(Policy())
decimal.getcontext().prec = 50
gc.disable()
locale.setlocale(locale.LC_ALL, "C")
logging.basicConfig(force=True)
logging.disable(logging.CRITICAL)
np.set_printoptions(precision=2)
np.seterr(all="raise")
os.chdir("/")
random.seed(0)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda number, frame: None)
structlog.configure(
    processors=[structlog.processors.JSONRenderer()],
    logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    cache_logger_on_first_use=True,
)
sys.setrecursionlimit(100)
sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
warnings.simplefilter("error")


@dyorc.program
class Meddled:
    def __init__(self) -> None:
        structlog.configure(processors=[structlog.processors.JSONRenderer()], cache_logger_on_first_use=True)

    def __call__(self, x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        assert decimal.getcontext().prec == 50
        assert np.geterr()["divide"] == "raise"
        assert np.get_printoptions()["precision"] == 2
        made = torch.zeros(1)
        assert (made.dtype, made.device.type) == (torch.float64, "meta")
        assert any(entry[0] == "error" for entry in warnings.filters)
        assert isinstance(asyncio.get_event_loop_policy(), Policy)
        assert isinstance(sys.stderr, io.StringIO)
        structlog.get_logger("users").warning("line of the user")
        return x * FACTOR


meddled = Meddled()
