"""What Ray Serve is asked for when the server stops, and when programs leave."""

import asyncio
import threading

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.config import DeploymentConfig, LinkConfig, TransportConfig
from dyorc.ray_serve.replica_specs import ReplicaSpecs
from dyorc.ray_serve.serve_replicas import ServeReplicas
from dyorc.replica.assignment import ForkServerSpec, ProgramSource, Uplink
from tests.deadlines import wait_until_async


@dyorc.program
def one(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x


def _replicas() -> ServeReplicas:
    source = ProgramSource(folder="", target="", program="")
    plans = ReplicaSpecs({one: source}, DeploymentConfig(), ForkServerSpec(folder=""), None, 1.0)
    return ServeReplicas(plans, DeploymentConfig(), Uplink(address="", link=LinkConfig(), transport=TransportConfig()))


def test_a_program_in_the_server_s_own_process_leaves_without_serve() -> None:
    """Versions that leave end all of their programs, wherever these run."""
    beside = one.with_options(name="beside", in_process=True)
    replicas = _replicas()
    replicas._is_deployed = True  # so that Serve would be asked
    asyncio.run(replicas.remove(beside))


def test_a_server_that_stops_waits_for_what_serve_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the thread would ask on when Ray has ended, and Serve would start another Ray."""
    has_begun, may_end, ended = threading.Event(), threading.Event(), list[str]()

    def delete(self: ServeReplicas, programs: object) -> None:
        has_begun.set()
        may_end.wait()
        ended.append("delete")

    monkeypatch.setattr(ServeReplicas, "_delete", delete)

    async def stop_while_a_program_is_removed() -> None:
        replicas = _replicas()
        replicas._is_deployed = True
        removing = asyncio.create_task(replicas.remove(one))
        await wait_until_async(has_begun.is_set, "Serve is asked to end the program")
        removing.cancel()
        try:
            stopping = asyncio.create_task(replicas.stop_asking())
            await asyncio.wait([stopping], timeout=0.05)
            assert not stopping.done()
        finally:
            may_end.set()
        await stopping
        assert ended == ["delete"]

    asyncio.run(stop_while_a_program_is_removed())
