"""A guard before slow work, whose programs make spans of their own."""

import os
import time

import numpy as np
from jaxtyping import Float
from opentelemetry import trace

import dyorc

Vector = Float[np.ndarray, "4"]
Vectors = Float[np.ndarray, "batch 4"]

_tracer = trace.get_tracer("tests")


@dyorc.program(max_batch_size=8)
def look_traced(x: Vectors) -> Vectors:
    with _tracer.start_as_current_span("look closely"):
        time.sleep(0.03)
    return x


@dyorc.program(max_batch_size=8)
def work_traced(x: Vectors) -> Vectors:
    with _tracer.start_as_current_span("work hard", attributes={"pid": os.getpid()}):
        time.sleep(0.06)
    return 2 * x


@dyorc.workflow
async def guarded_traced(x: Vector) -> Vector:
    """Returns twice x, unless it is negative."""
    if await dyorc.when(look_traced(x), lambda seen: seen[0] >= 0, likely=True):
        return work_traced(x)
    return x
