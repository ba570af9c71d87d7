"""Which parked replica is warmed."""

import pytest

from dyorc.scaling.devices import Seat, choose_to_warm

MB = 2**20


def seat(replica_id: str, node: str, *, has_weights: bool = False, upstream_bytes: int = 0) -> Seat:
    """Returns a parked replica."""
    return Seat(replica_id=replica_id, node=node, has_weights=has_weights, upstream_bytes=upstream_bytes)


def test_of_equal_ones_the_first_is_warmed() -> None:
    choice = choose_to_warm([seat("1", "a"), seat("2", "b")], 1.0)
    assert (choice.replica_id, choice.reason) == ("1", "node 'a' is as good as any")


def test_weights_that_were_read_before_outweigh_small_inputs() -> None:
    choice = choose_to_warm([seat("1", "a", upstream_bytes=MB), seat("2", "b", has_weights=True)], 0.5)
    assert (choice.replica_id, choice.reason) == ("2", "node 'b' has read the weights before")


def test_large_inputs_outweigh_weights_that_are_read_fast() -> None:
    choice = choose_to_warm([seat("1", "a", upstream_bytes=500 * MB), seat("2", "b", has_weights=True)], 0.1)
    assert (choice.replica_id, choice.reason) == ("1", f"node 'a' holds {500 * MB} bytes of the tensors that wait")


@pytest.mark.parametrize("load_s", [0.0, 10.0])
def test_both_reasons_are_named(load_s: float) -> None:
    choice = choose_to_warm([seat("1", "a"), seat("2", "b", has_weights=True, upstream_bytes=7)], load_s)
    assert choice.reason == "node 'b' has read the weights before and holds 7 bytes of the tensors that wait"
