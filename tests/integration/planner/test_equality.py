"""Each planner once: real ranks compute what one device computes, and the verifier proves it. `make equality` tries all."""

from collections.abc import Iterator
from typing import Any

import pytest

from dyorc.planner.runtime import RankForkServer
from tests.equality.cases import SHARES, TINY, Case, variants
from tests.equality.checking import Checker

_MODELS = ("gpt", "net")
_SLOW = ("duplex_hap", "exhaustive")
"""Planners that search long: they get the tiny model."""
_OF_MODEL = {"interlaced": "gpt"}
"""Planners that need something of the model: an embedding."""
_NO_MODEL = ("3f1b",)
"""Needs a model that goes through its layers several times; tests of its own have one."""
_FEW = [shares for shares, speeds in SHARES.items() if len(speeds) == 2]
_MANY = [shares for shares, speeds in SHARES.items() if len(speeds) == 4]


def _diagonal() -> Iterator[Case]:
    for index, (name, variant) in enumerate(variants().items()):
        if name in _NO_MODEL:
            continue
        model = TINY if variant.planner in _SLOW else _OF_MODEL.get(name, _MODELS[index % 2])
        shares = _MANY if variant.num_ranks == 4 or (index // 2) % 2 else _FEW
        yield Case(name, model, shares[index % 3])


@pytest.fixture(scope="module")
def checker(fork_server: RankForkServer) -> Iterator[Checker]:
    with Checker(fork_server.fork) as started:
        yield started


def _marked() -> Iterator[Any]:
    """One variant of each planner is enough for every day."""
    seen: set[str] = set()
    for case in _diagonal():
        planner = variants()[case.variant].planner
        yield pytest.param(case, marks=[pytest.mark.slow] if planner in seen else [], id=str(case))
        seen.add(planner)


@pytest.mark.parametrize("case", list(_marked()))
def test_real_ranks_compute_what_one_device_computes(checker: Checker, case: Case) -> None:
    outcome = checker.check(case)
    assert not outcome.refused
    assert outcome.is_equal, outcome


def test_a_plan_that_is_wrong_is_found(checker: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Case("dp_even", TINY, "2 even").example
    monkeypatch.setitem(found.results, found.program.loss, found.results[found.program.loss] + 1e-8)
    outcome = checker.check(Case("dp_even", TINY, "2 even"))
    assert not outcome.is_equal
    assert outcome.error == pytest.approx(1e-8)
