"""What a program's state is, given those of its replicas and how many are wanted; and what several processes report together."""

import pytest

from dyorc.models.status import ProgramState, ReplicaState, ReplicaStatus, StatusBoard
from tests.workflows.arithmetic import double


def board_of(num_wanted: int, *states: ReplicaState) -> StatusBoard:
    board = StatusBoard([double])
    board.want("double", num_wanted, 2)
    for at, state in enumerate(states):
        board.enter("double", ReplicaStatus(f"r{at}", at, "here", state))
    return board


@pytest.mark.parametrize(
    ("num_wanted", "states", "expected"),
    [
        (1, [], ProgramState.STARTING),
        (1, [ReplicaState.PARKED], ProgramState.LOADING),
        (1, [ReplicaState.LOADING], ProgramState.LOADING),
        (1, [ReplicaState.READY, ReplicaState.PARKED], ProgramState.READY),
        (0, [ReplicaState.READY], ProgramState.READY),
        (0, [ReplicaState.PARKED, ReplicaState.PARKING], ProgramState.PARKED),
        (0, [], ProgramState.COLD),
    ],
)
def test_the_state_of_a_program_is_that_of_its_best_replica(
    num_wanted: int, states: list[ReplicaState], expected: ProgramState
) -> None:
    board = board_of(num_wanted, *states)
    assert board.programs["double"].state is expected
    assert board.is_ready == (expected in (ProgramState.READY, ProgramState.PARKED, ProgramState.COLD))


def test_a_program_that_is_wanted_again_is_not_ready_before_a_replica_is() -> None:
    board = board_of(0, ReplicaState.PARKED)
    assert board.is_ready
    board.want("double", 1)
    assert not board.is_ready
    board.joined("double", "r0", 7, "here", 0.25)
    assert board.is_ready
    assert board.programs["double"].replica_pids == {"r0": 7}
    board.left("r0")
    assert board.programs["double"].state is ProgramState.STARTING


def test_each_replica_is_shown_with_its_process() -> None:
    report = board_of(1, ReplicaState.PARKED).programs["double"].as_report()["replicas"]["r0"]
    assert report.pop("since_s") > 0
    assert report == {"state": "parked", "pid": 0, "node": "here", "load_s": 0.0}


def test_cells_in_which_a_program_is_cold_are_as_good_as_those_in_which_it_is_ready() -> None:
    ready, cold, starting = board_of(1, ReplicaState.READY), board_of(0), board_of(1)
    together = ready.twin()
    together.show({0: ready.as_values(), 1: cold.as_values()}, max)
    assert together.is_ready
    assert list(together.programs["double"].replicas) == ["0/r0"]
    together.show({0: cold.as_values(), 1: starting.as_values()}, max)
    assert not together.is_ready


def test_a_program_that_a_person_has_taken_all_replicas_from_is_off_and_as_wanted_but_cannot_serve() -> None:
    board = board_of(1, ReplicaState.READY)
    board.programs["double"].is_off = True
    board.want("double", 0)
    assert board.programs["double"].state is ProgramState.READY, "it runs what it has"
    board.left("r0")
    assert board.programs["double"].state is ProgramState.OFF
    assert board.is_ready
    assert not board.programs["double"].can_serve


def test_a_program_whose_calls_all_fail_for_want_of_memory_is_not_ready_though_the_server_is() -> None:
    board = board_of(1, ReplicaState.READY)
    board.starve("double", "MemoryError: 9 GB")
    board.joined("double", "r1", 8)
    program = board.programs["double"]
    assert (program.state, program.error, program.can_serve, board.is_ready) == (
        ProgramState.STARVED,
        "MemoryError: 9 GB",
        False,
        True,
    )
    board.starve("double", "")
    assert (program.state, program.error, program.can_serve) == (ProgramState.READY, "", True)


def test_a_board_of_groups_is_ready_once_all_was_and_then_as_long_as_something_is() -> None:
    def shown(**states: str) -> dict[str, list[object]]:
        return {name: [state, 1, {}, ""] for name, state in states.items()}

    board = StatusBoard((), stays_ready=True)
    board.lacks("group", "it has no leader")
    assert not board.is_ready
    board.mirror(shown(one="ready", other="loading"))
    board.lacks("group", "")
    assert not board.is_ready
    board.mirror(shown(one="ready", other="ready"))
    assert board.is_ready
    board.mirror(shown(one="ready", other="starting", third="starting"))
    assert board.is_ready
    board.lose("it has no leader")
    assert not board.is_ready
    assert board.programs["one"].as_report()["error"] == "it has no leader"
    board.mirror(shown())
    assert board.is_ready, "nothing is served"
