"""What a replay says of structured values, and of the calls that differ."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.cli.replay import show_report
from dyorc.core.arrays import element_of_bytes
from dyorc.replay.replay_report import ReplayReport
from dyorc.replay.request_comparison import Comparison, OtherOutcome, short_outcomes
from dyorc.telemetry.histories.history_files import read_histories
from tests.unit.replay.histories import Vector, Vectors, double, halve, recorded, recording, total, tried, vector, workflow_like

pytestmark = pytest.mark.anyio


async def test_a_redacted_structured_value_cannot_even_be_passed_on(tmp_path: Path) -> None:
    @dyorc.program(batched=False)
    def size(fields: dict[str, Any]) -> int:
        return len(fields)

    @workflow_like("sized")
    async def flow(fields: dict[str, Any]) -> int:
        return size(fields)

    fields = [element_of_bytes(b'{"a": 1}')]
    assert tried(flow, await recorded(flow, tmp_path / "open", fields)).num_same == 1
    redacted = await recorded(flow, tmp_path / "redacted", fields, redact=("fields",))
    assert tried(flow, redacted).num_not_replayed == {"it needs the value of input fields, which is not in the history": 1}


async def test_a_number_of_another_type_in_a_structured_value_is_another_answer(tmp_path: Path) -> None:
    def flow_of(number: float) -> Workflow:
        @dyorc.program(batched=False)
        def size(text: str) -> dict[str, Any]:
            return {"sizes": [number]}

        @workflow_like("sized")
        async def flow(text: str) -> dict[str, Any]:
            return size(text + str(number))

        return flow

    async with recording(flow_of(1), tmp_path) as cell:
        await cell.ask(statics=["a"])
    histories = list(read_histories(tmp_path))
    assert tried(flow_of(1), histories, run_programs=True).num_same == 1
    other = tried(flow_of(1.0), histories, run_programs=True)
    assert other.answer == "output 'output' differs at 'sizes[0]': it was 1, it is 1.0"
    assert other.examples[0].first() == "calls: 1 more of 'size', 1 fewer of 'size'"


def test_long_outcomes_are_shown_around_their_first_difference() -> None:
    before, now = str([True] * 2000), str([True] * 1500 + [False] * 500)
    example = Comparison(request_id="r1", version="1", outcomes=(OtherOutcome("app.py, line 7", before, now),))
    report = ReplayReport(workflow="several", num_replayed=1, num_other_outcomes=1, examples=[example])
    report.outcomes = [("app.py, line 7", before, now, 1), ("app.py, line 9", "cat", "dog", 1)]
    printed = io.StringIO()
    show_report(report, Console(file=printed, width=2000, soft_wrap=True, highlight=False))
    lines = [line for line in printed.getvalue().splitlines() if "app.py" in line]
    assert len(lines) == 3
    assert max(map(len, (line.rstrip() for line in lines))) < 600
    for line in (lines[0], lines[2]):
        first, second = re.findall(r"\.\.\.([^.]*)\.\.\. \(11,800 characters left out\)|\.\.\.([^.]*)\.\.\. \(12,300", line)
        assert (len(first[0]), len(second[1])) == (200, 200)
        assert first[0].startswith(second[1][:40])
        assert second[1][40:].startswith("False")
    assert "app.py, line 9: cat is dog" in lines[1]
    assert short_outcomes("a" * 200, "b") == ("a" * 200, "b")
    assert short_outcomes("a" * 201, "b") == ("a" * 200 + "... (1 character left out)", "b")


async def test_a_program_with_other_outputs_has_no_result_in_the_history(tmp_path: Path) -> None:
    @workflow_like("sized")
    async def flow(x: Vector) -> Vector:
        return double(x)

    @dyorc.program(name="double")
    def with_two(x: Vectors) -> tuple[Vectors, Vectors]:
        return x, x

    @workflow_like("sized")
    async def other(x: Vector) -> Vector:
        return with_two(x)[1]

    report = tried(other, await recorded(flow, tmp_path, [vector(1, 1)]))
    assert report.missing == {"a result of 'double' with 2 outputs: it has 1 in the history": 1}
    assert (report.num_diverged, report.num_other_errors) == (1, 0)


async def test_examples_name_all_programs_whose_calls_differ(tmp_path: Path) -> None:
    def flow_of(*programs: Any) -> Workflow:
        @workflow_like("several")
        async def flow(x: Vector) -> Vector:
            for program in programs:
                program(x)
            return x

        return flow

    many = [double.with_options(name=f"double{number}") for number in range(10)]
    histories = await recorded(flow_of(double, double, halve), tmp_path, [vector(1, 1)])
    report = tried(flow_of(total, halve), histories)
    assert report.examples[0].first() == "calls: 1 more of 'total', 2 fewer of 'double'"
    assert tried(flow_of(*many), histories).examples[0].first().endswith("1 more of 'double7', others of 4 further programs")
