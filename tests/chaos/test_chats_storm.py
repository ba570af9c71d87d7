"""Short storms over chats, three kills each (``make chaos-chat`` has a hundred), and what many chats leave."""

import pytest

from tests.chaos import chats_soak, chats_storm
from tests.chaos.chats import EXAMPLE
from tests.leaks import no_leaks

needs_weights = pytest.mark.skipif(
    not (EXAMPLE / "weights" / "main.safetensors").exists(), reason="no weights; make demo-chat trains them"
)


@needs_weights
@pytest.mark.ray
def test_no_token_is_lost_wrong_or_doubled_when_processes_with_caches_are_killed() -> None:
    with no_leaks():
        figures, wrong = chats_storm.run(num_kills=3, seed=2, num_clients=8)
    print(f"\n{figures}")
    assert wrong == []
    assert sum(figures["kills"].values()) == 3
    assert sum(figures["answers"].values()) >= 4 * 20


@needs_weights
def test_chats_of_other_cells_are_unharmed_when_a_cell_is_killed() -> None:
    with no_leaks():
        figures, wrong = chats_storm.run(num_kills=3, seed=2, num_clients=8, num_cells=2)
    print(f"\n{figures}")
    assert wrong == []
    assert figures["kills"] == {"cell": 3}


@needs_weights
def test_all_chats_end_with_a_third_of_the_room_for_caches() -> None:
    with no_leaks():
        figures, wrong = chats_storm.run_evict(seed=2, num_clients=8, num_answers=2)
    print(f"\n{figures}")
    assert wrong == []
    assert figures["evicted"] > 0


def test_many_chats_leave_nothing() -> None:
    with no_leaks():
        figures, wrong = chats_soak.run(num_chats=600, num_clients=8)
    print(f"\n{figures}")
    assert wrong == []
