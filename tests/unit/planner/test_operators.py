"""A part of `make operators`: rules, definitions and the simplifier beside torch, on few samples."""

from collections.abc import Mapping

import pytest

from tests.operators import opinfo, written
from tests.operators.gathering import Gathering, gather
from tests.operators.misreadings import MISREADINGS, Misreading
from tests.operators.mutations import noticed_by
from tests.operators.results import check
from tests.operators.samples import OperationSample
from tests.operators.simplifications import SIMPLIFIER, simplified_wrongly

pytestmark = pytest.mark.real

_EVERY = 97
"""Of torch's operators, every so many is taken."""


@pytest.fixture(scope="module")
def gathering() -> Gathering:
    return gather(opinfo.functions(_EVERY), gather(written.functions()))


def test_the_normal_form_of_a_program_computes_what_torch_does(gathering: Gathering) -> None:
    assert gathering.num_recorded > 150
    assert not gathering.wrong


def test_rules_and_definitions_agree_with_torch(gathering: Gathering) -> None:
    results = check(gathering.samples.values())
    assert not {name: result.wrong for name, result in results.items() if result.wrong}
    assert sum(result.num_ways for result in results.values()) > 1000
    assert sum(result.num_exact + result.num_by_equality for result in results.values()) > 300


@pytest.fixture(scope="module")
def samples() -> Mapping[str, OperationSample]:
    return gather(written.functions()).samples


@pytest.mark.parametrize("mistake", MISREADINGS[3:20:4], ids=lambda mistake: mistake.name)
def test_a_mistake_that_rule_and_definition_share_is_noticed(mistake: Misreading, samples: Mapping[str, OperationSample]) -> None:
    assert noticed_by(mistake, samples.values())


def test_a_mistake_of_the_simplifier_is_noticed() -> None:
    assert simplified_wrongly(next(iter(SIMPLIFIER)))
