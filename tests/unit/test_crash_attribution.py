"""What a supervisor learns from the notes of cells that have ended."""

import os
import signal
from collections.abc import Iterator

import pytest

from dyorc.supervisor.crash_attribution import CrashAttribution, FileCrashNotes

A, B, C = b"a" * 32, b"b" * 32, b"c" * 32
CRASH, KILLED = -signal.SIGSEGV, -signal.SIGKILL


@pytest.fixture
def culprits() -> Iterator[CrashAttribution]:
    found = CrashAttribution(keep_s=600, max_kept=10)
    yield found
    found.close()


def ended(culprits: CrashAttribution, number: int, exit_code: int = CRASH) -> tuple[list[str], list[str]]:
    """Returns which inputs the others are told to suspect, and which to refuse."""
    told = culprits.record_crash(number, exit_code, "ended")
    suspects, refused = ([bytes.fromhex(digest).decode()[0] for _, digest, *_ in told[kind]] for kind in ("suspects", "refused"))
    return suspects, refused


def test_what_was_running_is_suspect_and_what_ends_a_cell_again_is_refused(culprits: CrashAttribution) -> None:
    first, second = FileCrashNotes(culprits.notes_of(0)), FileCrashNotes(culprits.notes_of(1))
    first.begin("p", [A, B], is_suspect=False)
    first.begin("q", [C], is_suspect=False)
    first.end("q")
    assert ended(culprits, 0) == (["a", "b"], [])
    second.begin("p", [A], is_suspect=True)
    second.begin("q", [C], is_suspect=False)
    assert ended(culprits, 1) == (["c"], ["a"])
    known = culprits.current_warning()
    assert [program for program, *_ in known["refused"]] == ["p"]
    assert [(program, digest[:2]) for program, digest, *_ in known["suspects"]] == [("p", "62"), ("q", "63")]


def test_notes_are_empty_for_the_next_cell(culprits: CrashAttribution) -> None:
    FileCrashNotes(culprits.notes_of(0)).begin("p", [A], is_suspect=True)
    assert ended(culprits, 0) == ([], ["a"])
    assert ended(culprits, 0) == ([], [])


def test_who_is_killed_from_outside_was_hardly_killed_by_one_of_several_inputs(culprits: CrashAttribution) -> None:
    notes = FileCrashNotes(culprits.notes_of(0))
    notes.begin("p", [A, B], is_suspect=False)
    assert ended(culprits, 0, KILLED) == ([], [])
    FileCrashNotes(culprits.notes_of(0)).begin("p", [A], is_suspect=False)
    assert ended(culprits, 0, KILLED) == (["a"], [])


def test_a_note_that_is_not_complete_says_nothing(culprits: CrashAttribution) -> None:
    os.pwrite(culprits.notes_of(0), b"\xff\0\0\0[", 0)
    assert ended(culprits, 0) == ([], [])


def test_inputs_are_forgotten() -> None:
    culprits = CrashAttribution(keep_s=0, max_kept=10)
    FileCrashNotes(culprits.notes_of(0)).begin("p", [A], is_suspect=False)
    assert ended(culprits, 0) == (["a"], [])
    assert culprits.current_warning()["suspects"] == []
    culprits.close()


def test_notes_of_many_programs_take_no_more_room_than_those_that_run_at_the_same_time(culprits: CrashAttribution) -> None:
    descriptor = culprits.notes_of(0)
    notes = FileCrashNotes(descriptor)
    notes.begin("p", [A], is_suspect=False)
    notes.begin("q", [B], is_suspect=False)
    notes.end("q")
    slot = os.fstat(descriptor).st_size  # nearly: the second note begins after it
    for number in range(100):
        notes.begin(f"p@{number}", [B], is_suspect=False)
        notes.end(f"p@{number}")
    assert os.fstat(descriptor).st_size < 2 * slot
    assert ended(culprits, 0) == (["a"], [])
