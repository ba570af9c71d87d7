"""A gateway on another machine than its orchestrator, where tensors go by gRPC with TLS: whom the cluster's authority has not
signed is not read from, and does not read.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dyorc.answering.local_answers import own_arrays
from dyorc.config import TransportConfig
from dyorc.errors import TensorLostError
from dyorc.transport.cluster_network import ClusterSecrets, NodeNetwork
from dyorc.transport.tensor_path import TensorExchange
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import TensorHolder
from dyorc.transport.zmq_tensors import ZmqTier
from tests.asking import submission
from tests.certificates import Authority
from tests.deadlines import wait_until_async
from tests.integration.cluster.ends import Told, gateway, gateway_server_of
from tests.integration.stack import FAST_TRANSPORT, running, within
from tests.workflows import large

NETWORK = NodeNetwork(host="127.0.0.1", secrets=ClusterSecrets.generate())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The cluster's."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def grpc_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves no other way to another node: else the one that was measured to be cheaper is taken."""
    monkeypatch.setattr(ZmqTier, "reaches", lambda self, holder: False)


def signed(authority: Authority, name: str, trusts: Authority | None = None) -> TransportConfig:
    """Returns the settings of a process with its own certificate."""
    own = authority.sign(name)
    files = {
        "grpc_certificate_file": str(own.certificate),
        "grpc_key_file": str(own.key),
        "grpc_roots_file": str((trusts or authority).own.certificate),
    }
    return FAST_TRANSPORT.model_copy(update={"grpc": True, **files})


async def test_large_tensors_go_between_gateway_and_replica_by_grpc_with_tls(authority: Authority) -> None:
    leaders, x = Told(), np.ones(4_000_000, np.uint8)
    async with (
        running([large.whole, large.summed], network=NETWORK, transport=signed(authority, "replica")) as stack,
        gateway_server_of(stack.orchestrator, "tcp://127.0.0.1:*", NETWORK) as gateway_server,
    ):
        leaders.tell(gateway_server)
        async with gateway(leaders, "gateway-1", "there", NETWORK, signed(authority, "gateway")) as backend:
            await wait_until_async(lambda: backend.status.programs and backend.status.is_ready, "programs are loaded")
            (total,) = await backend.infer(submission(large.summed, [x], (), within(60)), take=own_arrays)
            assert total == 4_000_000, "the replica reads what lies at the gateway"
            (y,) = await backend.infer(submission(large.whole, [np.array([5], np.float32)], (), within(60)), take=own_arrays)
            np.testing.assert_array_equal(y, np.arange(large.NUM_VALUES, dtype=np.float32) + 6)


def test_who_was_signed_by_another_authority_is_not_read_from_and_does_not_read(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    with end("replica", signed(authority, "replica")) as (replica, of_replica):
        with end("gateway", signed(authority, "gateway")) as (_, of_gateway):
            assert probed(of_gateway, replica) == "grpc"
        for strange in (signed(other, "stranger"), signed(other, "impostor", trusts=authority)):
            with end("stranger", strange) as (stranger, of_stranger):
                with pytest.raises(TensorLostError, match="UNAVAILABLE"):
                    probed(of_replica, stranger)
                if strange.grpc_roots_file == str(other.own.certificate):
                    with pytest.raises(TensorLostError, match="UNAVAILABLE"):
                        probed(of_stranger, replica)


@contextlib.contextmanager
def end(name: str, config: TransportConfig) -> Iterator[tuple[TensorHolder, Routes]]:
    """Opens a process's end, on its own node: how others reach it, and its ways to others."""
    with TensorExchange(name, name, config, NETWORK) as found, contextlib.closing(found.routes()) as routes:
        yield found.holder, routes


def probed(routes: Routes, holder: TensorHolder) -> str:
    """Reads what every end lets others measure with, and returns by which tier."""
    assert holder.probe is not None
    return routes.fetch(holder, [holder.probe], [memoryview(bytearray(holder.probe.num_bytes))])
