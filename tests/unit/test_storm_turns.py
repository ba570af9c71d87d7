"""Which faults of the storm happen next, and which together."""

import random
from collections import Counter

import pytest

from tests.storm.turns import WHOLE, Turns

_POSSIBLE = {
    "gateways": ["kill gateway", "stop gateway", "restart gateway"],
    "orchestrators": ["kill leader", "kill standby"],
    "link": ["cut link"],
    "clock": ["clock"],
    WHOLE: ["deploy"],
}
_KINDS = {kind: part for part, kinds in _POSSIBLE.items() for kind in kinds}


def test_every_kind_has_its_turn_as_often_as_the_others() -> None:
    turns, num_times = Turns(random.Random(3)), Counter[str]()
    for _ in range(100):
        num_times.update(turns.draw(_POSSIBLE))
        assert max(num_times.values()) - min(num_times[kind] for kind in _KINDS) <= 1


def test_what_happens_together_strikes_different_parts_and_never_the_whole() -> None:
    turns = Turns(random.Random(3))
    drawn = [turns.draw(_POSSIBLE) for _ in range(100)]
    assert max(map(len, drawn)) > 1
    for kinds in drawn:
        parts = [_KINDS[kind] for kind in kinds]
        assert len(set(parts)) == len(parts)
        assert WHOLE not in parts or len(parts) == 1


def test_a_kind_that_is_not_possible_is_not_drawn() -> None:
    turns = Turns(random.Random(3))
    assert turns.draw({"gateways": [], "clock": ["clock"]}) == ["clock"]
    with pytest.raises(ValueError, match="no fault is possible"):
        turns.draw({"gateways": []})
