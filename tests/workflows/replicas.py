"""Programs that say which replica they are."""

import os
import time
from typing import TypedDict

import numpy as np
from jaxtyping import Float, Int

import dyorc


class Identity(TypedDict):
    """The outputs of `identify`."""

    pid: Int[np.ndarray, " batch"]
    num_threads: Int[np.ndarray, " batch"]


class OneIdentity(TypedDict):
    """The outputs of a workflow."""

    pid: Int[np.ndarray, ""]
    num_threads: Int[np.ndarray, ""]


_ACTOR_OPTIONS = {"num_cpus": 0.25, "runtime_env": {"env_vars": {"GREETING": "hello"}}}


@dyorc.program(max_batch_size=1, num_replicas=2, ray_actor_options=_ACTOR_OPTIONS)
def identify(x: Float[np.ndarray, " batch"]) -> Identity:
    """Takes a moment, so that a second call goes to the other replica."""
    assert os.environ["GREETING"] == "hello", "ray_actor_options reach Ray"
    time.sleep(0.05)
    return {"pid": np.full(len(x), os.getpid()), "num_threads": np.full(len(x), dyorc.num_threads())}


alone = identify.with_options(name="identify_alone", num_replicas=1)


@dyorc.workflow
async def who(x: Float[np.ndarray, ""]) -> OneIdentity:
    """Returns which of two replicas took the call."""
    found = identify(x)
    return {"pid": found["pid"], "num_threads": found["num_threads"]}


@dyorc.workflow
async def who_alone(x: Float[np.ndarray, ""]) -> OneIdentity:
    """Does the same under another name, with one replica."""
    found = alone(x)
    return {"pid": found["pid"], "num_threads": found["num_threads"]}
