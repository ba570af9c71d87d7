"""Tensors that are fetched ahead come once, are kept until they are dropped, and never wait for each other."""

import threading
from collections.abc import Sequence

import pytest

from dyorc.errors import TensorLostError
from dyorc.transport.staging import StagingArea
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import ByteSpan, TensorHolder
from tests.deadlines import TIMEOUT_S

HOLDER = TensorHolder("far", "node", "dyorc-arena-0000000000000001")
FIRST, SECOND = ByteSpan(1, 100, 4), ByteSpan(2, 200, 4)


class Wire:
    """A tier whose fetches wait until they may go on."""

    name = "wire"

    def __init__(self) -> None:
        self.fetched: list[ByteSpan] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.has_begun = threading.Event()
        self.error: Exception | None = None

    def reaches(self, holder: TensorHolder) -> bool:
        return True

    def fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(TIMEOUT_S)
        self.fetched.extend(spans)
        if self.error is not None:
            raise self.error
        for span, memory in zip(spans, into, strict=True):
            memory[:] = bytes(range(span.block, span.block + span.num_bytes))

    def forget(self, holder_id: str) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def staging(wire: Wire) -> StagingArea:
    return StagingArea(Routes((), (wire,)), limit_bytes=8)


def fetch_all(staging: StagingArea) -> None:
    while staging.fetch_next():
        pass


def test_a_fetched_tensor_stays_until_it_is_dropped(staging: StagingArea, wire: Wire) -> None:
    staging.add(HOLDER, (FIRST,))
    staging.add(HOLDER, (FIRST,))
    fetch_all(staging)
    assert wire.fetched == [FIRST]
    part = staging.take(HOLDER, ByteSpan(1, 101, 2))
    assert part is not None
    assert (part.tobytes(), part.readonly) == (b"\x02\x03", True)
    staging.drop((("far", 1),))
    assert (staging.take(HOLDER, FIRST), staging.num_bytes) == (None, 0)
    assert part.tobytes() == b"\x02\x03", "a batch that runs keeps what it has"


def test_no_more_than_the_limit_is_kept(staging: StagingArea, wire: Wire) -> None:
    staging.add(HOLDER, (FIRST, SECOND, ByteSpan(3, 0, 1)))
    fetch_all(staging)
    assert (wire.fetched, staging.num_bytes) == ([FIRST, SECOND], 8)
    assert staging.take(HOLDER, ByteSpan(3, 0, 1), wire.fetch) is None


def test_a_batch_waits_for_tensors_on_their_way(staging: StagingArea, wire: Wire) -> None:
    staging.add(HOLDER, (FIRST,))
    wire.may_go_on.clear()
    fetching = threading.Thread(target=staging.fetch_next)
    fetching.start()
    assert wire.has_begun.wait(TIMEOUT_S)
    threading.Timer(0.05, wire.may_go_on.set).start()
    taken = staging.take(HOLDER, FIRST)
    fetching.join()
    assert taken is not None
    assert taken.tobytes() == b"\x01\x02\x03\x04"
    assert wire.fetched == [FIRST]


def test_a_batch_does_not_wait_behind_others(staging: StagingArea, wire: Wire) -> None:
    staging.add(HOLDER, (FIRST, SECOND))
    assert staging.take(HOLDER, SECOND) is None
    fetch_all(staging)
    assert wire.fetched == [FIRST]


def test_a_tensor_of_which_batches_need_parts_is_fetched_once(staging: StagingArea, wire: Wire) -> None:
    staging.add(HOLDER, (FIRST, SECOND))
    for _ in range(2):
        taken = staging.take(HOLDER, SECOND, wire.fetch)
        assert taken is not None
        assert taken.tobytes() == b"\x02\x03\x04\x05"
    staging.add(HOLDER, (SECOND,))
    fetch_all(staging)
    assert wire.fetched == [SECOND, FIRST]


def test_a_fetch_that_fails_leaves_nothing(staging: StagingArea, wire: Wire) -> None:
    wire.error = TensorLostError("gone")
    staging.add(HOLDER, (FIRST,))
    fetch_all(staging)
    assert (staging.take(HOLDER, FIRST), staging.num_bytes) == (None, 0)
    with pytest.raises(TensorLostError):
        staging.take(HOLDER, FIRST, wire.fetch)
    assert staging.num_bytes == 0


def test_a_holder_that_has_started_again_is_another(staging: StagingArea, wire: Wire) -> None:
    staging.add(HOLDER, (FIRST,))
    fetch_all(staging)
    again = TensorHolder("far", "node", "dyorc-arena-0000000000000002")
    assert staging.take(again, FIRST) is None


@pytest.mark.parametrize("end", ["forget", "clear"])
def test_tensors_no_longer_needed_are_not_fetched(staging: StagingArea, wire: Wire, end: str) -> None:
    staging.add(HOLDER, (FIRST, SECOND))
    staging.fetch_next()
    staging.forget("far") if end == "forget" else staging.clear()
    fetch_all(staging)
    assert (wire.fetched, staging.num_bytes, staging.take(HOLDER, FIRST)) == ([FIRST], 0, None)


def test_tensors_dropped_on_their_way_are_not_kept(staging: StagingArea, wire: Wire) -> None:
    staging.add(HOLDER, (FIRST,))
    wire.may_go_on.clear()
    fetching = threading.Thread(target=staging.fetch_next)
    fetching.start()
    assert wire.has_begun.wait(TIMEOUT_S)
    staging.drop((("far", 1),))
    wire.may_go_on.set()
    fetching.join()
    assert (staging.take(HOLDER, FIRST), staging.num_bytes) == (None, 0)
