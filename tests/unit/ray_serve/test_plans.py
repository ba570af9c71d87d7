"""What Ray is told of replicas that share devices by turns."""

from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.program import Program
from dyorc.config import DeploymentConfig
from dyorc.ray_serve.replica_specs import ReplicaSpecs
from dyorc.replica.assignment import ForkServerSpec, ProgramSource

_ANYWHERE = ProgramSource(folder="", target="", program="")


@dyorc.program
def one(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x


def _program(name: str, num_gpus: float, **numbers: int) -> Program:
    return one.with_options(name=name, autoscaling_config=numbers, ray_actor_options={"num_gpus": num_gpus, "num_cpus": 1})


def _told(num_devices: float, *programs: Program) -> list[float]:
    plans = ReplicaSpecs(dict.fromkeys(programs, _ANYWHERE), DeploymentConfig(), ForkServerSpec(folder=""), None, 1.0)
    options: list[Any] = [plans.actor_options(program, num_devices) for program in programs]
    assert all(one["num_cpus"] == 1 for one in options)
    return [one["num_gpus"] for one in options]


def test_all_replicas_of_programs_that_take_turns_fit_and_spread_over_all_devices() -> None:
    a, b = (_program(name, 0.6, min_replicas=0, max_replicas=2) for name in "ab")
    assert _told(1, a, b) == [0.25, 0.25]
    assert _told(2, a, b) == [0.5, 0.5]
    assert _told(4, a, b) == [0.6, 0.6], "there is one for each"
    assert _told(3, a, b) == [0.5, 0.5], "a whole number on each"


def test_programs_that_are_always_warm_or_take_several_devices_keep_theirs() -> None:
    turns = _program("turns", 0.6, min_replicas=0, max_replicas=1)
    warm = _program("warm", 0.5, min_replicas=1, max_replicas=1)
    several = _program("several", 2, min_replicas=0, max_replicas=1)
    assert _told(1, turns, warm) == [0.5, 0.5]
    assert _told(4, turns, several, warm) == [0.6, 2, 0.5]


@pytest.mark.parametrize("num_devices", [0.0, 1.0])
def test_without_a_device_to_share_ray_is_told_what_is_declared(num_devices: float) -> None:
    turns = _program("turns", 0.6, min_replicas=0, max_replicas=1)
    warm = _program("warm", 1.0, min_replicas=1, max_replicas=1)
    assert _told(num_devices, turns, warm) == [0.6, 1.0]
