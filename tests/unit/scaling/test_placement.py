"""Which replica is warmed, and which is parked."""

from dyorc.scaling.placement import Seat, choose_to_park, choose_to_warm

MB = 2**20


def _seat(replica_id: str, node: str, **about: int) -> Seat:
    return Seat(replica_id=replica_id, node=node, **about)


def test_nothing_to_choose() -> None:
    assert choose_to_warm([], {}, 0.0) is None
    assert choose_to_park([]) is None


def test_a_node_without_a_free_device_is_no_choice() -> None:
    seats = [_seat("1", "a", has_weights=1, upstream_bytes=MB), _seat("2", "b")]
    choice = choose_to_warm(seats, {"a": 0.4, "b": 0.5}, 0.5, 100 * MB)
    assert choice is not None
    assert choice.replica_id == "2"
    assert "0.5 of a device free" in choice.reason
    assert choose_to_warm(seats, {"a": 0.4}, 0.5) is None


def test_weights_in_the_page_cache_outweigh_small_inputs() -> None:
    seats = [_seat("1", "a", upstream_bytes=MB), _seat("2", "b", has_weights=1)]
    choice = choose_to_warm(seats, {}, 0.0, weights_bytes=500 * MB)
    assert choice is not None
    assert (choice.replica_id, "page cache" in choice.reason) == ("2", True)


def test_large_inputs_outweigh_small_weights() -> None:
    seats = [_seat("1", "a", upstream_bytes=500 * MB), _seat("2", "b", has_weights=1)]
    choice = choose_to_warm(seats, {}, 0.0, weights_bytes=MB)
    assert choice is not None
    assert (choice.replica_id, "bytes of the tensors that wait" in choice.reason) == ("1", True)


def test_a_fraction_goes_to_the_fullest_device_that_fits() -> None:
    seats = [_seat("1", "a"), _seat("2", "b")]
    choice = choose_to_warm(seats, {"a": 1.0, "b": 0.5}, 0.5)
    assert choice is not None
    assert choice.replica_id == "2"


def test_the_idle_one_far_from_the_inputs_is_parked() -> None:
    seats = [_seat("1", "a", num_running=2), _seat("2", "a", upstream_bytes=MB), _seat("3", "b")]
    choice = choose_to_park(seats)
    assert choice is not None
    assert choice.replica_id == "3"
    assert choice.reason == "it is idle, and node 'b' has fewer bytes of the tensors that wait than others"
