"""Whatever bytes come in, each place where they do returns or raises its documented error: quickly, and without much memory.

`make fuzz` does the same for as long as one likes. What it found is kept in `tests/fuzz/corpus`, and read again here.
"""

import time
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dyorc.errors import InvalidInputError
from dyorc.gateway.codec.form_fields import read_form
from tests.effort import examples
from tests.fuzz.contract import MAX_CPU_S, ContractBrokenError, FuzzTarget
from tests.fuzz.entry_points import NAMES, build_target, kept_inputs
from tests.fuzz.mutations import mutate

pytestmark = pytest.mark.filterwarnings("default")  # of NumPy, about files that it refuses or that are odd


@pytest.fixture(scope="module", params=NAMES)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzTarget]:
    """Yields each target."""
    opened = build_target(request.param, tmp_path_factory.mktemp(request.param))
    yield opened
    opened.close()


def test_inputs_that_were_once_read_wrongly_are_not_any_more(target: FuzzTarget) -> None:
    for path in kept_inputs(target.name):
        target.take(path.read_bytes())


def test_seeds_make_sense(target: FuzzTarget) -> None:
    assert sum(target.take(seed) for seed in target.seeds) > 0


@settings(max_examples=examples(2000, 0.05), suppress_health_check=list(HealthCheck))
@given(data=st.data(), number=st.integers(0, 2**64 - 1))
def test_no_bytes_do_harm(target: FuzzTarget, data: st.DataObject, number: int) -> None:
    target.take(mutate(data.draw(st.sampled_from(target.seeds)), target, Random(number)))


@settings(max_examples=examples(1000, 0.03), suppress_health_check=list(HealthCheck))
@given(content=st.binary(max_size=200))
def test_no_other_bytes_do_harm(target: FuzzTarget, content: bytes) -> None:
    target.take(content)


def test_malformed_forms_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Any client could fill a disk with a line for each."""
    with pytest.raises(InvalidInputError):
        read_form(b"no form", "multipart/form-data; boundary=cut")
    assert not caplog.records


def _misbehave(data: bytes) -> None:
    match data:
        case b"slow":
            until_s = time.process_time() + 1.1 * MAX_CPU_S
            while time.process_time() < until_s:
                pass
        case b"refused":
            raise ValueError
        case _:
            raise KeyError(data)


def test_a_broken_contract_is_noticed() -> None:
    broken = FuzzTarget(name="broken", read=_misbehave, errors=(ValueError,), seeds=(b"",))
    assert not broken.take(b"refused")
    with pytest.raises(KeyError):
        broken.take(b"")
    with pytest.raises(ContractBrokenError, match="expected at most"):
        broken.take(b"slow")
