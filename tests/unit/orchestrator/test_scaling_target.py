"""How the desired replicas reach the engine and the fleet."""

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.engine.interfaces import Load
from dyorc.models.status import ReplicaState, ReplicaStatus, StatusBoard
from dyorc.orchestrator.scaler import ScalingTarget
from dyorc.scaling.model import DesiredReplicas


@dyorc.program
def double(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x * 2


def test_those_beyond_what_may_stay_on_a_device_are_named() -> None:
    status, asked = StatusBoard([double]), list[tuple[object, ...]]()
    works = ScalingTarget([double], status, lambda name: Load(0, 0, None, 1), lambda *wanted, is_order: asked.append(wanted))
    for name, state, device in (
        ("a", ReplicaState.READY, "0"), ("b", ReplicaState.LOADING, "0"), ("c", ReplicaState.PARKED, "0"),
        ("d", ReplicaState.READY, "1"), ("e", ReplicaState.PARKING, "1"),
    ):  # fmt: skip
        status.enter("double", ReplicaStatus(name, 1, "n", state, device=device))
    works.want(DesiredReplicas("double", 2, 1, "", {"n/0": 1, "n/1": 1}))
    works.want(DesiredReplicas("double", 2, 1, "", {"n/1": 0}))
    works.want(DesiredReplicas("double", 3, 1, ""))
    assert asked == [("double", 2, 1, 0.0, ["b"]), ("double", 2, 1, 0.0, ["d"]), ("double", 3, 1, 0.0, [])]
