"""Inputs of a request that is put aside stay with its gateway until they have been read after all."""

import numpy as np

from dyorc.answering.input_identity import InputsIdentity
from dyorc.cluster.effect_announcements import SuspendedRequests
from dyorc.cluster.gateway_sessions import GatewaySession, RemoteRequest
from dyorc.core.tensor import DType, TensorRef
from dyorc.engine.events import RequestArrived
from tests.workflows import parted


def request(session: GatewaySession, number: int, block: int) -> RemoteRequest:
    """Returns a request whose input lies in a block of its gateway's."""
    stored = TensorRef(
        dtype=DType.FP32, shape=(50_000,), num_bytes=200_000, node="here", holder=session.gateway_id, block=block, offset=0
    )
    identity = InputsIdentity("doubled", (np.zeros(1),), ())
    return RemoteRequest(session, number, RequestArrived(number, parted.doubled, (stored,), identity=identity), identity)


def test_blocks_are_freed_when_their_request_is_cancelled_and_kept_when_it_is_asked_for_again() -> None:
    freed: list[tuple[GatewaySession, int]] = []
    aside = SuspendedRequests(lambda session, block: freed.append((session, block)))
    silent, other = GatewaySession(b"1", "silent"), GatewaySession(b"2", "other")
    cancelled, asked_again, still_read = (request(silent, number, 10 + number) for number in (1, 2, 3))
    aside.suspend(silent, 7, [cancelled, asked_again, still_read])
    assert aside.is_silent(silent)
    assert not aside.is_silent(other)
    assert aside.withholds(silent, 11)
    assert aside.withholds(silent, 12)
    assert not aside.withholds(silent, 14), "of another request"
    assert not aside.withholds(other, 11)
    aside.drop(cancelled)
    aside.drop(still_read)
    assert freed == [(silent, 11)], "the engine frees the other one when it has been read"
    assert aside.resume(silent, 7) == [asked_again]
    assert not aside.withholds(silent, 12)
    assert not aside.is_silent(silent)
