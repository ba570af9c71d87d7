"""The time of a program that reads a stream is its own: what its producer took is the producer's."""

from dyorc.engine.request_trace import CallTrace
from dyorc.telemetry.critical_path import WrongGuesses
from dyorc.telemetry.diagnosis import Diagnosis, diagnose
from tests.unit.telemetry.stories import batch, call, record


def explained(ended: float, *calls: CallTrace) -> Diagnosis:
    """Diagnoses a request, and checks that its pieces are all of its time, in order and without gaps."""
    found = record(ended, calls)
    diagnosis = diagnose(found, WrongGuesses())
    ends = [found.arrived_ns, *(piece.end_ns for piece in diagnosis.path)]
    assert [piece.start_ns for piece in diagnosis.path] == ends[:-1]
    assert ends[-1] == found.done_ns
    return diagnosis


def spent(diagnosis: Diagnosis) -> dict[tuple[str, str], float]:
    """Returns the milliseconds of each stage, by program."""
    found: dict[tuple[str, str], float] = {}
    for piece in diagnosis.path:
        key = str(piece.stage), "" if piece.call is None else piece.call.program
        found[key] = found.get(key, 0.0) + piece.duration_ns / 1e6
    return found


def reader(started: float, ended: float, work: float, *, name: str = "read", number: int = 1, **others: object) -> CallTrace:
    """Returns a call that was asked for at 2 ms."""
    ran = batch(name, 2, started, ended, infer_s=work / 1e3)
    return call(number, name, 2, 2, ended, batches=[ran], reads_streams=True, **others)


def heavy(number: int, started: float, ended: float) -> CallTrace:
    return call(number, "heavy", started, started, ended, batches=[batch("heavy", started, started, ended)])


def test_calls_that_make_the_parts_take_the_time() -> None:
    calls = [heavy(number, 2 + 50 * number, 52 + 50 * number) for number in range(2, 20)]
    found = explained(1006, reader(2, 1006, 4), *calls)
    assert spent(found)["compute", "heavy"] == 900
    assert spent(found)["compute", "read"] == 4
    assert found.sentences[0].startswith("900 ms of 1,006 ms: 'heavy' computed 18 times")


def test_a_program_that_still_yields_takes_the_time() -> None:
    producer = call(2, "yields", 2, 2, 1004, batches=[batch("yields", 2, 2, 1004)])
    found = explained(1006, reader(2, 1006, 100, sources=(2,)), producer)
    assert spent(found)["compute", "yields"] == 904
    assert spent(found)["compute", "read"] == 100


def test_readers_of_readers() -> None:
    readers = [reader(2, 1000 + number, 3, name=f"read-{number}", number=number) for number in range(4, 0, -1)]
    found = spent(explained(1005, *readers, heavy(9, 2, 980)))
    assert found["compute", "heavy"] == 978
    assert sum(found.get(("compute", f"read-{number}"), 0) for number in range(1, 5)) <= 12


def test_a_reader_that_was_slow_to_start() -> None:
    """Its producer, which could not go on before that, has not made the request late."""
    producer = call(2, "yields", 2, 2, 990, batches=[batch("yields", 2, 2, 990, infer_s=0.02)])
    found = spent(explained(1000, reader(900, 1000, 60), producer))
    assert found["queue", "read"] == 898
    assert found["compute", "read"] == 60


def test_a_reader_that_waits_for_no_call() -> None:
    found = spent(explained(1006, reader(2, 1006, 4)))
    assert found == {("reading", ""): 1, ("admission", ""): 1, ("compute", "read"): 4, ("engine", "read"): 1000}


def test_what_was_ready_before_a_reader_began_takes_no_time_of_it() -> None:
    first = call(3, "first", 2, 2, 4, batches=[batch("first", 2, 2, 4)])
    found = spent(explained(1000, reader(5, 1000, 3), heavy(2, 6, 990), first))
    assert found["compute", "heavy"] == 984
    assert found["queue", "read"] == 3
