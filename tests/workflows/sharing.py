"""Programs that share one device, and one that belongs on certain nodes."""

import os
from typing import TypedDict

import numpy as np
from jaxtyping import Float, Int

import dyorc

_TURNS = {"min_replicas": 0, "max_replicas": 1, "downscale_delay_s": 0.5, "downscale_to_zero_delay_s": 0.5}


class Seat(TypedDict):
    """Which device its process sees, and which process that is."""

    device: Int[np.ndarray, " batch"]
    pid: Int[np.ndarray, " batch"]


class OneSeat(TypedDict):
    """The same of one call."""

    device: Int[np.ndarray, ""]
    pid: Int[np.ndarray, ""]


@dyorc.program(autoscaling_config=_TURNS, ray_actor_options={"num_cpus": 0.1, "num_gpus": 0.6})
def wide_a(x: Float[np.ndarray, " batch"]) -> Seat:
    return {"device": np.full(len(x), int(os.environ["CUDA_VISIBLE_DEVICES"])), "pid": np.full(len(x), os.getpid())}


wide_b = wide_a.with_options(name="wide_b")
_HALF = {"num_cpus": 0.1, "num_gpus": 0.4}
narrow_a = wide_a.with_options(name="narrow_a", ray_actor_options=_HALF)


@dyorc.program(ray_actor_options={"num_cpus": 0.1, "label_selector": {"disk": "fast"}})
def labelled(x: Float[np.ndarray, " batch"]) -> Int[np.ndarray, " batch"]:
    return np.full(len(x), os.getpid())


@dyorc.workflow
async def on_wide_a(x: Float[np.ndarray, ""]) -> OneSeat:
    """Asks a program that takes most of a device."""
    found = wide_a(x)
    return {"device": found["device"], "pid": found["pid"]}


@dyorc.workflow
async def on_wide_b(x: Float[np.ndarray, ""]) -> OneSeat:
    """Asks another one that does."""
    found = wide_b(x)
    return {"device": found["device"], "pid": found["pid"]}


@dyorc.workflow
async def on_narrow_a(x: Float[np.ndarray, ""]) -> OneSeat:
    """Asks one that fits beside either of them."""
    found = narrow_a(x)
    return {"device": found["device"], "pid": found["pid"]}


@dyorc.workflow
async def on_a_label(x: Float[np.ndarray, ""]) -> Int[np.ndarray, ""]:
    """Returns which process took the call."""
    return labelled(x)
