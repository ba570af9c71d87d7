"""Where the time of a request went is read from its story, and is all there."""

import pytest

from dyorc.engine.actions import FormReason
from dyorc.engine.request_trace import NEXT_LEADER, DecisionTrace, Move, PartTrace, TraceNote
from dyorc.telemetry.critical_path import RequestStage, WrongGuesses
from dyorc.telemetry.diagnosis import Diagnosis, diagnose
from dyorc.telemetry.record import RequestRecord
from tests.unit.telemetry.stories import batch, call, ns, record


def explained(found: RequestRecord, *others: RequestRecord) -> Diagnosis:
    """Diagnoses a request beside others, and checks that its pieces are all of its time, in order and without gaps."""
    wrong_guesses = WrongGuesses()
    for one in (found, *others):
        wrong_guesses.add(one)
    diagnosis = diagnose(found, wrong_guesses)
    assert sum(diagnosis.stages_ns.values()) == found.duration_ns
    ends = [found.arrived_ns, *(piece.end_ns for piece in diagnosis.path)]
    assert [piece.start_ns for piece in diagnosis.path] == ends[:-1]
    assert ends[-1] == found.done_ns
    return diagnosis


def ms(diagnosis: Diagnosis) -> dict[str, float]:
    """Returns the stages in milliseconds."""
    return {str(stage): duration_ns / 1e6 for stage, duration_ns in diagnosis.stages_ns.items()}


def test_plain_compute() -> None:
    found = explained(record(100, [call(1, "large", 2, 2, 99, batches=[batch("large", 3, 4, 99, size=8, infer_s=0.09)])]))
    assert found.cause is RequestStage.COMPUTE
    assert ms(found) == {"reading": 1, "admission": 1, "queue": 2, "compute": 90, "engine": 6}
    assert found.sentences == [
        "90 ms of 100 ms: 'large' computed, in a batch of 8 calls",
        "6 ms of 100 ms: DyOrc itself: scheduling, links, and the workflow's own code",
    ]


def test_a_request_that_was_sent_to_the_next_leader() -> None:
    one = call(1, "large", 82, 82, 99, batches=[batch("large", 83, 84, 99, infer_s=0.015)])
    diagnosis = explained(record(100, [one], notes=[TraceNote(ns(82), NEXT_LEADER)]))
    assert diagnosis.sentences[0] == (
        "81 ms of 100 ms: DyOrc itself: scheduling, links, and the workflow's own code, and 80 ms until it was sent to the next "
        "leader of its group"
    )


def test_a_cold_program() -> None:
    found = explained(record(900, [call(1, "large", 2, 2, 900, was_cold=True, batches=[batch("large", 880, 880, 900)])]))
    assert found.cause is RequestStage.COLD
    assert ms(found)["cold"] == 878
    assert found.sentences[0] == (
        "878 ms of 900 ms: the call of 'large' waited because the program was cold: no replica took batches"
    )


def test_a_full_queue() -> None:
    """It counts as waiting, too, that its batch was sent while another ran."""
    one = call(1, "large", 2, 2, 410, num_waiting=12, batches=[batch("large", 300, 322, 410, size=4)])
    found = explained(record(410, [one]))
    assert found.cause is RequestStage.QUEUE
    assert ms(found)["queue"] == 320
    assert found.sentences[0] == (
        "320 ms of 410 ms: the call of 'large' waited in the queue, 12 calls before it, "
        "until a batch of 4 was sent to large#1: all waiting calls"
    )


def test_a_program_whose_places_were_all_taken() -> None:
    sent = batch("count", 300, 300, 410, reason=FormReason.SIDE_BY_SIDE.value)
    found = explained(record(410, [call(1, "count", 2, 2, 410, num_waiting=3, batches=[sent])]))
    assert found.sentences[0].endswith(
        "the call of 'count' waited in the queue, 3 calls before it, until one of the places of count#1 was free (`max_ongoing`)"
    )


def test_a_replica_that_ran_the_wrong_guess_of_another_request() -> None:
    vain = batch("large", 0, 10, 200, num_guesses=1, requests=[2])
    other = record(300, [call(9, "large", 0, 0, 200, is_guess=True, outcome="squashed", batches=[vain])], number=2)
    found = explained(record(260, [call(1, "large", 2, 2, 260, batches=[batch("large", 205, 205, 260)])]), other)
    assert found.cause is RequestStage.WRONG_GUESS
    assert ms(found) | {"wrong_guess": 190, "queue": 13} == ms(found)
    assert found.sentences[0] == ("190 ms of 260 ms: the call of 'large' waited for a replica that was running wrong guesses")


@pytest.mark.parametrize(("replica", "num_guesses"), [("large#2", 1), ("large#1", 0)])
def test_wrong_guesses_elsewhere_or_beside_certain_calls_cost_nobody_a_replica(replica: str, num_guesses: int) -> None:
    beside = batch("large", 0, 10, 200, num_guesses=num_guesses, replica_id=replica)
    other = record(300, [call(9, "large", 0, 0, 200, is_guess=True, outcome="squashed", batches=[beside])], number=2)
    found = explained(record(260, [call(1, "large", 2, 2, 260, batches=[batch("large", 205, 205, 260)])]), other)
    assert found.cause is RequestStage.QUEUE


def test_a_request_whose_own_wrong_guess_took_the_replica() -> None:
    """The small net was unsure; what ran under "sure" had to end before what was right could run."""
    small = call(1, "small", 2, 2, 20, batches=[batch("small", 2, 2, 20)])
    guess = call(
        2, "polish", 3, 3, 150, sources=[1], decision=0, branch="sure", is_guess=True, outcome="squashed",
        batches=[batch("polish", 5, 5, 150, num_guesses=1)],
    )  # fmt: skip
    right = call(3, "polish", 20, 20, 170, decision=0, branch="unsure", batches=[batch("polish", 150, 150, 170)])
    decision = DecisionTrace("app.py:7", ns(3), [1], decided_ns=ns(20), followed={"sure": 0.9}, outcome="unsure")
    found = explained(record(170, [small, guess, right], decisions=[decision]))
    assert found.cause is RequestStage.WRONG_GUESS
    assert ms(found) == {"reading": 1, "admission": 1, "wrong_guess": 130, "compute": 38}


def test_a_client_that_sends_slowly() -> None:
    one = call(1, "large", 802, 802, 810, batches=[batch("large", 802, 802, 810)])
    slow = record(810, [one], read_ns=ns(801), num_bytes=3 * 2**20)
    slow.started_ns = ns(802)
    found = explained(slow)
    assert found.cause is RequestStage.READING
    assert found.sentences == ["801 ms of 810 ms: the client was sending the request, 3 MiB"]


def test_a_client_that_reads_slowly() -> None:
    one = call(1, "large", 2, 2, 10, batches=[batch("large", 2, 2, 10)])
    found = explained(record(10, [one], written_ns=ns(700)))
    assert found.cause is RequestStage.WRITING
    assert found.sentences[0] == "690 ms of 700 ms: the client was slow in reading the answer"


def test_a_client_that_takes_parts_slowly() -> None:
    """The workflow asks for the next only when a part has been taken."""
    calls = [
        call(1, "token", 2, 2, 10, batches=[batch("token", 2, 2, 10)]),
        call(2, "token", 310, 310, 320, batches=[batch("token", 310, 310, 320)]),
    ]
    parts = [PartTrace(0, ns(10), ns(310)), PartTrace(1, ns(320), ns(395))]
    found = explained(record(400, calls, parts=parts))
    assert found.cause is RequestStage.TAKING
    assert ms(found) == {"reading": 1, "admission": 1, "taking": 375, "compute": 18, "engine": 5}
    assert found.sentences[0] == "375 ms of 400 ms: the client was slow in taking parts of the answer"


def test_a_large_tensor_from_another_host() -> None:
    moves = [Move("message", 100, 0.0), Move("zmq", 64 * 2**20, 0.21)]
    one = batch("large", 2, 2, 240, gather_s=0.22, infer_s=0.01, moves=moves)
    found = explained(record(240, [call(1, "large", 2, 2, 240, batches=[one])]))
    assert found.cause is RequestStage.MOVING
    assert found.sentences[0] == (
        "220 ms of 240 ms: inputs and outputs of 'large' were moved: 64 MiB over the network (zmq) in 210 ms, "
        "100 bytes in its message in 0 ms"
    )


def test_inputs_that_were_fetched_while_another_batch_ran_cost_nothing() -> None:
    one = batch("large", 2, 100, 120, gather_s=0.05, infer_s=0.02)
    assert "moving" not in ms(explained(record(120, [call(1, "large", 2, 2, 120, batches=[one])])))


# The path


def test_the_path_goes_through_the_calls_that_others_waited_for() -> None:
    """Of two calls side by side, only the longer counts."""
    first = call(1, "first", 2, 2, 12, batches=[batch("first", 2, 2, 12)])
    short = call(2, "short", 2, 12, 15, sources=[1], batches=[batch("short", 12, 12, 15)])
    long = call(3, "long", 2, 12, 72, sources=[1], batches=[batch("long", 12, 12, 72)])
    final = call(4, "final", 2, 72, 80, sources=[2, 3], batches=[batch("final", 72, 72, 80)])
    found = explained(record(80, [first, short, long, final]))
    assert [piece.call.program for piece in found.path if piece.call is not None] == ["first", "long", "final"]
    assert ms(found) == {"reading": 1, "admission": 1, "compute": 78}


def test_a_guess_that_was_ready_early_was_held_up_by_its_decision() -> None:
    slow = call(1, "slow", 2, 2, 90, batches=[batch("slow", 2, 2, 90)])
    guess = call(
        2, "fast", 3, 3, 10, decision=0, is_guess=True, committed_ns=ns(90), batches=[batch("fast", 3, 3, 10, num_guesses=1)]
    )
    decision = DecisionTrace("app.py:7", ns(3), [1], decided_ns=ns(90), outcome="yes")
    found = explained(record(92, [slow, guess], decisions=[decision]))
    assert [piece.call.program for piece in found.path if piece.call is not None] == ["slow"]


def test_a_guess_that_was_not_run_ahead_begins_with_its_decision() -> None:
    slow = call(1, "slow", 2, 2, 90, batches=[batch("slow", 2, 2, 90)])
    late = call(2, "fast", 3, 3, 100, decision=0, is_guess=True, committed_ns=ns(90), batches=[batch("fast", 90, 90, 100)])
    decision = DecisionTrace("app.py:7", ns(3), [1], decided_ns=ns(90), outcome="yes")
    found = explained(record(100, [slow, late], decisions=[decision]))
    assert ms(found) == {"reading": 1, "admission": 1, "compute": 98}


def test_a_workflow_that_reads_a_value_asks_after_it() -> None:
    first = call(1, "first", 2, 2, 12, batches=[batch("first", 2, 2, 12)])
    second = call(2, "second", 20, 20, 50, batches=[batch("second", 20, 20, 50)])
    assert ms(explained(record(50, [first, second]))) == {"reading": 1, "admission": 1, "compute": 40, "engine": 8}


def test_what_was_lost_with_its_replica() -> None:
    tries = [batch("large", 2, 2, 400, outcome="lost"), batch("large", 410, 410, 430)]
    again = call(2, "small", 430, 430, 440, is_repeat=True)
    found = explained(record(440, [call(1, "large", 2, 2, 430, batches=tries), again]))
    assert ms(found) == {"reading": 1, "admission": 1, "queue": 10, "compute": 20, "lost": 408}
    assert found.sentences[0] == "398 ms of 440 ms: 'large' ran for nothing, or again, because something was lost"


def test_a_batch_that_failed_and_ran_again_in_halves_was_not_lost() -> None:
    tries = [batch("large", 2, 2, 60, outcome="failed"), batch("large", 60, 60, 70)]
    found = explained(record(70, [call(1, "large", 2, 2, 70, batches=tries)]))
    assert ms(found) == {"reading": 1, "admission": 1, "compute": 10, "retried": 58}
    assert found.sentences[0].startswith("58 ms of 70 ms: 'large' failed in a batch, and its calls ran again in smaller ones")


def test_a_replica_that_was_free_while_the_event_loop_was_busy_is_no_queue() -> None:
    waited = batch("large", 300, 300, 310, overdue_ns=280 * 10**6)
    found = explained(record(310, [call(1, "large", 2, 2, 310, batches=[waited])]))
    assert ms(found) == {"reading": 1, "admission": 1, "queue": 18, "compute": 10, "engine": 280}
    sent_ahead = batch("large", 10, 300, 310, overdue_ns=280 * 10**6)
    assert ms(explained(record(310, [call(1, "large", 2, 2, 310, batches=[sent_ahead])]))) == ms(found)


def test_a_request_that_failed_while_it_waited() -> None:
    """Its deadline passed; nobody knows how long the call would have taken."""
    waiting = call(1, "large", 2, 2, 500, outcome="withdrawn")
    later = call(2, "final", 2, 0, 500, sources=[1], outcome="withdrawn")
    later.queued_ns = 0
    found = explained(record(500, [waiting, later], outcome="deadline_exceeded"))
    assert ms(found) == {"reading": 1, "admission": 1, "queue": 498}
    assert found.sentences == ["498 ms of 500 ms: the call of 'large' waited in the queue, and was never run"]


def test_a_program_that_fails() -> None:
    failed = call(
        1, "large", 2, 2, 50, outcome="failed", error="x", batches=[batch("large", 2, 2, 50, infer_s=0.0, outcome="failed")]
    )
    assert explained(record(50, [failed], outcome="program_failed")).cause is RequestStage.COMPUTE


def test_a_request_without_calls() -> None:
    found = explained(record(3))
    assert ms(found) == {"reading": 1, "admission": 1, "engine": 1}


def test_a_request_of_which_nothing_but_its_end_is_known() -> None:
    found = record(30)
    found.origin.arrived_ns, found.origin.read_ns, found.story = 0, 0, None
    assert ms(explained(found)) == {"engine": 28}
