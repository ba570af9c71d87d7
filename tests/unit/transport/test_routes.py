"""Which tier a tensor takes: a view where there is one, else what was measured to be the fastest for its size."""

from collections.abc import Sequence

import pytest

from dyorc.errors import TensorLostError, TransportError
from dyorc.transport import tier_routes as routes_module
from dyorc.transport.tier_routes import PROBE_BYTES, Routes
from dyorc.transport.tiers import ByteSpan, TensorHolder

FAR = TensorHolder("far", "there", "arena", probe=ByteSpan(1, 4096, max(PROBE_BYTES)))


class Clock:
    """Moves when a tier fetches."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s


class FakeTier:
    """A wire that takes b + a * n seconds, and a viewer that may reach nobody."""

    def __init__(self, name: str, clock: Clock, base_s: float = 0.0, per_byte_s: float = 0.0, nodes: str = "there") -> None:
        self.name = name
        self.is_broken = False
        self.num_fetches = 0
        self.forgotten: list[str] = []
        self.is_closed = False
        self._clock, self._base_s, self._per_byte_s, self._nodes = clock, base_s, per_byte_s, nodes

    def reaches(self, holder: TensorHolder) -> bool:
        return holder.node == self._nodes

    def fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        if self.is_broken:
            raise TransportError("cut")
        self.num_fetches += 1
        assert [span.num_bytes for span in spans] == [len(buffer) for buffer in into]
        self._clock.now_s += self._base_s + self._per_byte_s * sum(map(len, into))

    def forget(self, holder_id: str) -> None:
        self.forgotten.append(holder_id)

    def close(self) -> None:
        self.is_closed = True

    def view(self, holder: TensorHolder, span: ByteSpan, is_writable: bool) -> memoryview:
        raise AssertionError

    def is_intact(self, holder: TensorHolder, block: int) -> bool:
        raise AssertionError

    def restore(self, holder: TensorHolder, span: ByteSpan) -> None:
        raise AssertionError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Makes the clock by which fetches are measured."""
    fake = Clock()
    monkeypatch.setattr(routes_module, "time", fake)
    return fake


def test_the_first_viewer_that_reaches_is_taken(clock: Clock) -> None:
    one, two, three = (FakeTier(name, clock, nodes=node) for name, node in (("1", "here"), ("2", "there"), ("3", "there")))
    routes = Routes((one, two, three))
    assert routes.viewer(FAR) is two
    assert routes.viewer(TensorHolder("x", "elsewhere", "arena")) is None


def test_small_tensors_take_the_tier_with_cheap_starts_and_large_ones_that_with_cheap_bytes(clock: Clock) -> None:
    quick = FakeTier("quick", clock, base_s=1e-4, per_byte_s=1e-8)
    broad = FakeTier("broad", clock, base_s=1e-3, per_byte_s=1e-9)
    routes = Routes((), (broad, quick))  # equal at 100,000 bytes
    assert [routes.wire(FAR, n).name for n in (0, 99_000, 101_000, 2**30)] == ["quick", "quick", "broad", "broad"]
    assert quick.num_fetches == broad.num_fetches == 6, "measured once"
    assert routes.report() == {
        "far": {"broad": {"base_us": 1000.0, "us_per_mib": 1048.6}, "quick": {"base_us": 100.0, "us_per_mib": 10485.8}}
    }


def test_a_single_wire_is_not_measured(clock: Clock) -> None:
    tier = FakeTier("only", clock)
    routes = Routes((), (tier, FakeTier("other", clock, nodes="elsewhere")))
    assert routes.wire(FAR, 1) is tier
    assert (tier.num_fetches, routes.report()) == (0, {})


def test_a_wire_that_does_not_answer_is_left_out(clock: Clock) -> None:
    broken, slow = FakeTier("broken", clock), FakeTier("slow", clock, base_s=1.0)
    broken.is_broken = True
    assert Routes((), (broken, slow)).wire(FAR, 1) is slow
    slow.is_broken = True
    with pytest.raises(TensorLostError, match="'far' does not answer: broken: cut; slow: cut"):
        Routes((), (broken, slow)).wire(FAR, 1)


def test_errors_name_a_holder_without_tier_or_probe(clock: Clock) -> None:
    with pytest.raises(TensorLostError, match="no tier leads to holder 'far' on node 'there'"):
        Routes(()).wire(FAR, 1)
    with pytest.raises(TransportError, match="'bare' names no block to measure with"):
        Routes((), (FakeTier("1", clock), FakeTier("2", clock))).wire(TensorHolder("bare", "there", "arena"), 1)


def test_a_holder_that_is_forgotten_is_measured_again(clock: Clock) -> None:
    tiers = [FakeTier(name, clock) for name in ("1", "2")]
    viewer = FakeTier("viewer", clock, nodes="here")
    routes = Routes((viewer,), tiers)
    routes.wire(FAR, 1)
    routes.forget("far")
    assert [tier.forgotten for tier in (viewer, *tiers)] == [["far"]] * 3
    assert routes.report() == {}
    routes.wire(FAR, 1)
    assert [tier.num_fetches for tier in tiers] == [12, 12]
    routes.close()
    assert all(tier.is_closed for tier in (viewer, *tiers))
