"""Files of plans: whole or not there, small, and refused with the reason if they are not what was written."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dyorc.errors import PlanError
from dyorc.planner.plan import Apply, MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.plan.plan_file import digest_of, plan_from_json, plan_to_json, read_plan, write_plan
from dyorc.planner.program import REPLICATE, axes_of, strategies_of
from tests.unit.planner.examples import example


def _plan(num_parts: int = 2, num_ranks: int = 4) -> Plan:
    """Data parallel, with microbatches."""
    program = example("gpt").program
    axes = axes_of(program)
    builder = PlanBuilder(program, axes)
    builder.mesh(
        "all", [MeshAxis(name="part", size=num_parts, is_time=True), MeshAxis(name="data", size=num_ranks)], range(num_ranks)
    )
    batch = axes.outermost[program.inputs[0]][0]
    for name in program.sources:
        builder.source(name, "all", [REPLICATE, REPLICATE])
    for node in program.nodes:
        strategies = strategies_of(program, node, axes)
        split = next((one for one in strategies if one.axis == batch), strategies[0])
        for part in range(num_parts):
            builder.apply(node, "all", [split, split], part)
    for name in program.results:
        builder.result(name, "all", [REPLICATE, REPLICATE])
    return builder.build(Provenance(planner="data", search_s=1.5, notes={"why": "a test"}))


def test_a_real_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan, path = _plan(), tmp_path / "plan.json"
    write_plan(plan, path)
    assert read_plan(path) == plan
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def test_how_long_the_search_took_does_not_change_the_digest() -> None:
    plan = _plan()
    slower = replace(plan, provenance=replace(plan.provenance, search_s=99.0))
    assert digest_of(plan) == digest_of(slower)
    assert digest_of(plan) != digest_of(replace(plan, provenance=replace(plan.provenance, seed=1)))


def test_each_step_of_a_large_plan_costs_few_bytes() -> None:
    plan = _plan(num_ranks=8)
    many = replace(plan, steps=plan.steps * (20_000 // len(plan.steps) + 1))
    assert len(many.steps) >= 20_000
    growth = len(plan_to_json(many)) - len(plan_to_json(plan))
    assert growth / (len(many.steps) - len(plan.steps)) < 40
    assert '"S0(4*2)|S0(1*4,0*4)"' in plan_to_json(plan)


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "plan.json").mkdir()
    with pytest.raises(OSError, match=r"plan\.json"):
        write_plan(_plan(), tmp_path / "plan.json")
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def _with_digest(text: str) -> str:
    """Puts the digest right after a change, as somebody would who changes a plan on purpose."""
    with pytest.raises(PlanError) as raised:
        plan_from_json(text)
    found = re.search(r"found '(\w+)'", str(raised.value))
    assert found
    return re.sub(r'"digest":"\w+"', f'"digest":"{found[1]}"', text)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda text: text[:-500], "not a plan, or only a part of one"),
        (lambda text: "weights", "not a plan, or only a part of one"),
        (lambda text: "{}", "missing required field `format`"),
        (lambda text: text.replace('"version":2', '"version":9'), "expected a plan of version 2 .* version 9: plan again"),
        (lambda text: text.replace('"dyorc-plan"', '"other"', 1), "found format 'other'"),
        (lambda text: text.replace('"all_reduce"', '"all_mix"', 1), r"Invalid enum value 'all_mix' - at `\$.steps"),
        (lambda text: text.replace('["apply"', '["think"', 1), r"Invalid value 'think' - at `\$.steps"),
        (lambda text: text.replace('"why"', '"how"'), "was changed after it was written: expected digest '.*', found '.*'"),
        (lambda text: _with_digest(text.replace('"S0(', '"Q0(', 1)), r"layouts\[\d+\]: expected a placement .*; found 'Q0"),
        (
            lambda text: _with_digest(text.replace('["apply",0,', '["apply",99999,')),
            r"steps\[\d+\]: operation: expected a number below",
        ),
        (lambda text: _with_digest(text.replace('"R|R"', '"R"')), "expected 2 placements, one for each axis of all; found 1"),
    ],
    ids=["torn", "text", "empty", "version", "format", "collective", "step", "changed", "placement", "index", "layout"],
)
def test_a_file_that_is_no_plan_is_refused_with_the_place(change: Callable[[str], str], error: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(change(plan_to_json(_plan())))
    with pytest.raises(PlanError, match=error) as raised:
        read_plan(path)
    assert str(path) in str(raised.value)


def test_a_read_plan_has_all_that_a_rank_needs() -> None:
    plan = plan_from_json(plan_to_json(_plan()))
    applied = next(step for step in plan.steps if isinstance(step, Apply))
    assert plan.piece_bytes(applied.outputs[0], plan.meshes["all"].coordinates[-1]) > 0
