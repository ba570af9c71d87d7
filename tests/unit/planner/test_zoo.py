"""The zoo's runner: models of other libraries, workers that hang, and what is counted."""

from typing import Any

import pytest

from tests.zoo.capturing import capture_entry
from tests.zoo.models import entries
from tests.zoo.models.operators import define_missing_operators
from tests.zoo.planning import Case
from tests.zoo.report import counts_of, page_of
from tests.zoo.supervising import Supervisor


def test_names_are_unique_and_there_are_enough_of_each_library() -> None:
    counts = {library: len(entries([library])) for library in ("transformers", "torchvision", "timm", "diffusers")}
    assert counts["transformers"] >= 60
    assert min(counts.values()) >= 12
    assert len(entries()) == sum(counts.values())


def test_program_computes_what_the_model_computes() -> None:
    define_missing_operators()
    pytest.importorskip("timm")
    outcome = capture_entry(entries(["timm"])["timm/mixer"])
    assert outcome.captured, outcome


def test_what_takes_too_long_is_a_row() -> None:
    with Supervisor(limit_s=0.05) as supervisor:
        row = supervisor.check("timm/mixer", [Case("hap", "2 even")])
    assert row["capture"]["refused"] == "took longer than 0.05 s"
    assert row["plans"] == []


def test_wrong_plans_are_counted_and_named() -> None:
    counts = counts_of([_row("timm/a", is_equal=True), _row("timm/b", is_equal=False)])
    assert (counts["captured"], counts["plans"], counts["plans_equal"], counts["wrong"]) == (2, 2, 1, ["timm/b"])
    assert "hap on 2 even: 1.0e+00 loss" in page_of([_row("timm/b", is_equal=False)])


def _row(name: str, *, is_equal: bool) -> dict[str, Any]:
    plan = {"planner": "hap", "cluster": "2 even", "refused": "", "trouble": "", "where": "loss"}
    capture = {"is_equal": True, "refused": "", "nodes": 3, "dtype": "float64", "error": 0.0, "where": ""}
    return {"name": name, "capture": capture, "plans": [plan | {"is_equal": is_equal, "error": 0.0 if is_equal else 1.0}]}
