"""A short storm of stops, one by each signal (``make chaos-stops`` has forty, of each shape of server)."""

from tests.chaos import stops_storm


def test_whatever_was_accepted_is_answered_and_nothing_is_left() -> None:
    figures, violations = stops_storm.run("cell", num_stops=1, seed=1, num_clients=6)
    print(f"\n{figures}")
    assert violations == []
    assert figures["stops"] == 2
    assert figures["answered"] > 2
