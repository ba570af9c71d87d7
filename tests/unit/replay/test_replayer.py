"""Replays of histories on other versions: what is the same, what is different, and what runs."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.errors import WorkflowError
from dyorc.telemetry.histories.history_files import read_histories
from tests.unit.replay.histories import (
    Vector,
    double,
    halve,
    note,
    ran,
    recorded,
    recording,
    refuse_negative,
    total,
    tried,
    vector,
    workflow_like,
)

pytestmark = pytest.mark.anyio

SMALL, MIDDLE, LARGE = vector(1, 1), vector(3, 1), vector(9, 1)


def with_threshold(threshold: float) -> Workflow:
    @workflow_like("threshold")
    async def flow(x: Vector) -> Vector:
        if await dyorc.when(total(x), lambda value: value > threshold):
            return double(x)
        return halve(x)

    return flow


def guarded_by(threshold: float) -> Workflow:
    """A cascade that needs a further program only sometimes."""

    @workflow_like("guarded")
    async def flow(x: Vector) -> Vector:
        if await dyorc.when(total(x), lambda value: value > threshold):
            return double(x)
        return x

    return flow


async def test_the_same_version_has_no_differences_and_runs_nothing(tmp_path: Path) -> None:
    histories = await recorded(with_threshold(5), tmp_path, [SMALL], [MIDDLE], [LARGE])
    report = tried(with_threshold(5), histories)
    assert (report.num_replayed, report.num_same, report.num_different) == (3, 3, 0)
    assert report.recorded == report.expected
    assert ran == []


async def test_another_threshold_is_found_where_it_matters(tmp_path: Path) -> None:
    histories = await recorded(guarded_by(5), tmp_path, [SMALL], [MIDDLE], [LARGE])
    higher = tried(guarded_by(20), histories)
    assert (higher.num_same, higher.num_other_outcomes, higher.num_other_calls, higher.num_other_answers) == (2, 1, 1, 1)
    assert higher.fewer_calls == {"double": 1}
    assert higher.answer == "output 'output' differs in 2 of 2 elements, by up to 9; the first was 18.0, it is 9.0"
    assert [before for _, before, _, _ in higher.outcomes] == ["True"]
    assert higher.examples[0].request_id == "r3"
    lower = tried(guarded_by(3), histories)
    assert (lower.num_same, lower.num_diverged, lower.more_calls) == (2, 1, {"double": 1})
    assert lower.missing == {"a call of 'double' that is in no history": 1}
    assert lower.examples[0].expected_ms is None
    assert ran == []


async def test_new_calls_run_if_they_may(tmp_path: Path) -> None:
    histories = await recorded(guarded_by(5), tmp_path, [SMALL], [MIDDLE])
    report = tried(guarded_by(3), histories, run_programs=True)
    assert (report.num_diverged, report.num_other_answers, report.more_calls) == (0, 1, {"double": 1})
    assert ran == ["double"]


async def test_a_shorter_way_is_expected_to_be_quicker(tmp_path: Path) -> None:
    histories = await recorded(guarded_by(5), tmp_path, [LARGE])
    histories[0].calls[0].queue_ms, histories[0].calls[0].compute_ms = 2.0, 3.0
    report = tried(guarded_by(20), histories)
    assert report.expected is not None
    assert report.expected.p50_ms == 5.0


async def test_calls_side_by_side_take_as_long_as_the_longest(tmp_path: Path) -> None:
    def of(*programs: Any) -> Workflow:
        @workflow_like("beside")
        async def flow(x: Vector) -> Vector:
            await dyorc.gather(*[program(x) for program in programs])
            return x

        return flow

    histories = await recorded(of(double, halve, total), tmp_path, [SMALL])
    for call, compute_ms in zip(histories[0].calls, (4.0, 7.0, 20.0), strict=True):
        call.queue_ms, call.compute_ms = 0.0, compute_ms
    report = tried(of(double, halve), histories)
    assert report.fewer_calls == {"total": 1}
    assert report.expected is not None
    assert report.expected.p50_ms == 7.0


async def test_effects_never_run_again(tmp_path: Path) -> None:
    def noting(number: int) -> Workflow:
        @workflow_like("noting")
        async def flow(x: Vector) -> Vector:
            for at in range(number):
                note(x[at:])
            return x

        return flow

    def waiting() -> Workflow:
        @workflow_like("noting")
        async def flow(x: Vector) -> Vector:
            await note(x[1:])
            return x

        return flow

    histories = await recorded(noting(1), tmp_path, [MIDDLE])
    assert tried(noting(1), histories, run_programs=True).num_same == 1
    more = tried(noting(2), histories, run_programs=True)
    assert (more.num_different, more.num_diverged, more.more_calls) == (1, 0, {"note": 1})
    less = tried(noting(0), histories, run_programs=True)
    assert (less.num_different, less.fewer_calls) == (1, {"note": 1})
    awaited = tried(waiting(), histories, run_programs=True)
    assert awaited.missing == {"a call of 'note' that is in no history, and has an effect": 1}
    assert tried(noting(1), histories).num_same == 1  # the replayer goes on after what it gave up
    assert ran == []


async def test_an_effect_twice_is_not_the_effect_once(tmp_path: Path) -> None:
    def noting(number: int) -> Workflow:
        @workflow_like("noting")
        async def flow(x: Vector) -> Vector:
            for _ in range(number):
                note(x)
            return x

        return flow

    histories = await recorded(noting(1), tmp_path, [MIDDLE])
    report = tried(noting(2), histories, run_programs=True)
    assert report.more_calls == {"note": 1}
    assert ran == []


async def test_loops_fan_outs_and_nested_workflows(tmp_path: Path) -> None:
    @dyorc.workflow
    async def until_large(x: Vector, limit: float = 100.0) -> Vector:
        while not await dyorc.when(total(x), lambda value: value > limit):
            x = double(x)
        return x

    def flow_of(limit: float) -> Workflow:
        @workflow_like("nested")
        async def flow(x: Vector) -> Vector:
            parts = [until_large(x[at : at + 1], limit=limit) for at in range(2)]
            sums = await dyorc.gather(*[total(part) for part in parts])
            return halve(np.array(sums, np.float32))

        return flow

    histories = await recorded(flow_of(100.0), tmp_path, [MIDDLE], [LARGE])
    assert len(histories[0].calls) > 10
    assert tried(flow_of(100.0), histories).num_same == 2
    shorter = tried(flow_of(50.0), histories)
    assert shorter.num_other_outcomes == 2
    assert shorter.missing == {"a call of 'halve' that is in no history": 2}
    ended = tried(flow_of(50.0), histories, run_programs=True)
    assert (ended.num_diverged, ended.num_other_answers) == (0, 2)
    assert set(ran) == {"halve"}


async def test_a_choice_of_several(tmp_path: Path) -> None:
    def routed(shift: int) -> Workflow:
        @workflow_like("routed")
        async def flow(x: Vector) -> Vector:
            way = await dyorc.choose(total(x), lambda value: (int(value) + shift) % 3)
            return (double, halve, refuse_negative)[way](x)

        return flow

    histories = await recorded(routed(0), tmp_path, [SMALL], [MIDDLE], [LARGE])
    assert tried(routed(0), histories).num_same == 3
    assert tried(routed(3), histories).num_same == 3
    report = tried(routed(1), histories)
    assert report.num_other_outcomes == 3
    assert sorted((before, now, number) for _, before, now, number in report.outcomes) == [("1", "2", 2), ("2", "0", 1)]


async def test_errors_are_compared(tmp_path: Path) -> None:
    def strict(catches: bool) -> Workflow:
        @workflow_like("strict")
        async def flow(x: Vector) -> Vector:
            try:
                await refuse_negative(x)
            except dyorc.ProgramError:
                if not catches:
                    raise
            return x

        return flow

    def failing(text: str) -> Workflow:
        @workflow_like("strict")
        async def flow(x: Vector) -> Vector:
            refuse_negative(x)
            raise WorkflowError(text)

        return flow

    histories = await recorded(strict(catches=False), tmp_path, [SMALL], [-SMALL])
    assert tried(strict(catches=False), histories).num_same == 2
    caught = tried(strict(catches=True), histories)
    assert (caught.num_same, caught.num_other_errors) == (1, 1)
    assert "now it is answered" in caught.examples[0].error
    fails = tried(failing("no"), histories)
    assert fails.num_other_errors == 2
    assert "it was answered, and now it fails: no" in fails.examples[0].error


async def test_a_version_that_is_not_deterministic_is_named(tmp_path: Path) -> None:
    numbers = itertools.count(1)

    @workflow_like("drawn")
    async def random(x: Vector) -> Vector:
        return (double, halve)[next(numbers) % 2](x)

    @workflow_like("drawn")
    async def plain(x: Vector) -> Vector:
        halve(x)
        return double(x)

    histories = await recorded(plain, tmp_path, [SMALL])
    report = tried(random, histories)
    assert report.num_nondeterministic == 1
    assert "is not deterministic" in report.examples[0].first()


async def test_values_that_are_not_kept_pass_through(tmp_path: Path) -> None:
    @workflow_like("passed")
    async def flow(x: Vector) -> Vector:
        return halve(double(x)[1:])

    @workflow_like("passed")
    async def other(x: Vector) -> Vector:
        return halve(double(x)[:1])

    @workflow_like("passed")
    async def looking(x: Vector) -> Vector:
        values = await double(x)
        return halve(double(x)[1:] if values[0] else x)

    histories = await recorded(flow, tmp_path, [SMALL], max_value_bytes=0)
    assert tried(flow, histories).num_same == 1
    assert tried(other, histories).more_calls == {"halve": 1}
    unread = tried(looking, histories)
    assert unread.num_not_replayed == {"it needs the value that 'double' returned, which is not in the history": 1}
    run = tried(looking, histories, run_programs=True)
    assert run.num_not_replayed == {"it needs the value of input x, which is not in the history": 1}
    assert ran == []


async def test_a_large_value_through_a_view_of_the_whole_is_the_same(tmp_path: Path) -> None:
    def flow_of(view: Callable[[Any], Any]) -> Workflow:
        @workflow_like("viewed")
        async def flow(x: Vector) -> Vector:
            return halve(view(double(view(x))))

        return flow

    histories = await recorded(flow_of(lambda ref: ref), tmp_path, [SMALL], max_value_bytes=0)
    for whole in (np.s_[:], np.s_[...], np.s_[..., :], np.s_[0:], np.s_[::1]):
        assert tried(flow_of(lambda ref, whole=whole: ref[whole]), histories).num_same == 1, whole
    assert tried(flow_of(lambda ref: ref[:][:]), histories).num_same == 1
    assert tried(flow_of(lambda ref: ref[1:]), histories).more_calls == {"double": 1, "halve": 1}
    assert tried(flow_of(lambda ref: ref[::-1]), histories).more_calls == {"double": 1, "halve": 1}


async def test_answers_are_compared_as_numbers(tmp_path: Path) -> None:
    def flow_of(zero: float) -> Workflow:
        @workflow_like("signed")
        async def flow(x: Vector) -> Vector:
            return (await double(x)) * np.float32(zero)

        return flow

    def passing(zero: float) -> Workflow:
        @workflow_like("passing")
        async def flow(x: Vector) -> Vector:
            return halve(np.full(2, zero, np.float32))

        return flow

    histories = await recorded(flow_of(0.0), tmp_path / "answers", [SMALL])
    assert tried(flow_of(-0.0), histories).num_same == 1
    passed = await recorded(passing(0.0), tmp_path / "arguments", [SMALL])
    assert tried(passing(-0.0), passed).more_calls == {"halve": 1}, "a program may tell them apart"


async def test_large_constants_are_known_by_their_digest(tmp_path: Path) -> None:
    def flow_of(factor: float) -> Workflow:
        @workflow_like("constant")
        async def flow(x: Vector) -> Vector:
            return double(np.full(100, factor, np.float32))

        return flow

    histories = await recorded(flow_of(1), tmp_path, [SMALL], max_value_bytes=16)
    assert tried(flow_of(1), histories).num_same == 1
    assert tried(flow_of(2), histories).more_calls == {"double": 1}


async def test_calls_that_were_not_needed_are_like_equal_ones_that_were(tmp_path: Path) -> None:
    @workflow_like("unneeded")
    async def flow(x: Vector) -> Vector:
        first = double(x)
        halve(double(x))
        return await halve(first) if await dyorc.when(total(first), lambda value: value > 0) else x

    histories = await recorded(flow, tmp_path, [MIDDLE])
    twice = histories[0].calls
    assert [call.program for call in twice] == ["double", "double", "halve", "total", "halve"]
    for number in (1, 2):
        twice[number].outputs = None
    assert tried(flow, histories).num_same == 1


async def test_a_large_result_is_computed_again_if_it_is_read(tmp_path: Path) -> None:
    @workflow_like("read")
    async def flow(x: Vector) -> Vector:
        return double(double(x[:1])[0:1])

    @workflow_like("read")
    async def looking(x: Vector) -> Vector:
        result = double(double(x[:1])[0:1])
        await result
        return result

    histories = await recorded(flow, tmp_path, [MIDDLE])
    for call in histories[0].calls:
        call.outputs = tuple([type(kept)(kept.dtype, kept.shape) for kept in call.outputs or ()])
    report = tried(looking, histories, run_programs=True)
    assert report.num_same == 1
    assert ran == ["double", "double"]


async def test_redacted_inputs_can_be_passed_on_and_not_read(tmp_path: Path) -> None:
    @workflow_like("redacted")
    async def flow(x: Vector) -> Vector:
        return double(x)

    @workflow_like("redacted")
    async def reading(x: Vector) -> Vector:
        ref: Any = x
        await ref
        return double(x)

    histories = await recorded(flow, tmp_path, [SMALL], redact=("x",))
    assert tried(flow, histories).num_same == 1
    assert tried(reading, histories).num_not_replayed == {"it needs the value of input x, which is not in the history": 1}


async def test_static_parameters_count(tmp_path: Path) -> None:
    @dyorc.program
    def scale(x: Float[np.ndarray, "batch n"], factor: float) -> Float[np.ndarray, "batch n"]:
        return (x * factor).astype(np.float32)

    def flow_of(more: float) -> Workflow:
        @workflow_like("scaled")
        async def flow(x: Vector, factor: float) -> Vector:
            return scale(x, factor=factor + more)

        return flow

    @workflow_like("scaled")
    async def without_default(x: Vector, other: float) -> Vector:
        return scale(x, factor=other)

    for name, options in (("open", {}), ("redacted", {"redact": ("factor",)})):
        async with recording(flow_of(0), tmp_path / name, **options) as cell:
            await cell.ask(SMALL, statics=[2.0])
    histories = list(read_histories(tmp_path / "open"))
    assert tried(flow_of(0), histories).num_same == 1
    assert tried(flow_of(1), histories).more_calls == {"scale": 1}
    (text,) = tried(without_default, histories).errors
    assert text.startswith("it was answered, and now it fails: workflow 'scaled': 'other' is missing")
    redacted = tried(flow_of(0), list(read_histories(tmp_path / "redacted")))
    assert list(redacted.num_not_replayed) == ["its parameter 'factor' is redacted"]


async def test_the_request_is_known_to_its_workflow(tmp_path: Path) -> None:
    def flow_of(prefix: str) -> Workflow:
        @workflow_like("asking")
        async def flow(x: Vector) -> Vector:
            return double(x) if dyorc.request().id.startswith(prefix) else x

        return flow

    histories = await recorded(flow_of("r"), tmp_path, [SMALL])
    assert tried(flow_of("r"), histories).num_same == 1
    assert tried(flow_of("s"), histories).fewer_calls == {"double": 1}


async def test_what_cannot_be_replayed_is_said(tmp_path: Path) -> None:
    @dyorc.workflow
    async def other(x: Vector) -> Vector:
        return double(x)

    @workflow_like("shaped")
    async def flow(x: Vector) -> Vector:
        return double(x)

    histories = await recorded(flow, tmp_path, [SMALL])
    assert tried(other, histories).num_of_others == 1
    histories[0].error = ("deadline", "too late")
    assert list(tried(flow, histories).num_not_replayed) == ["it failed for a reason outside of its workflow: deadline"]


async def test_floats_may_differ_by_the_tolerance(tmp_path: Path) -> None:
    def flow_of(factor: float) -> Workflow:
        @workflow_like("scaled")
        async def flow(x: Vector) -> Vector:
            return (await double(x)) * np.float32(factor)

        return flow

    histories = await recorded(flow_of(1), tmp_path, [SMALL])
    assert tried(flow_of(1), histories).num_same == 1
    assert tried(flow_of(1.001), histories).num_other_answers == 1
    assert tried(flow_of(1.001), histories, tolerance=0.01).num_same == 1


async def test_a_program_is_replayed_like_a_workflow(tmp_path: Path) -> None:
    histories = await recorded(double, tmp_path, [SMALL])
    assert tried(double, histories).num_same == 1
