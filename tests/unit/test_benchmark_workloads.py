"""The benchmark's workloads: every way of running one returns the reference's answers, in the form that the workload declares."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyorc
from benchmarks.workloads import workload
from benchmarks.workloads.base import LoadedProgram, Tensors, TensorSpec, Workload, answer_alone
from benchmarks.workloads.examples import use_example
from benchmarks.workloads.lockstep import answer_together
from dyorc.authoring.loading import load
from dyorc.authoring.spec import TensorSpec as DeclaredSpec
from dyorc.authoring.workflow import Workflow
from loadgen.pool import Pool
from tests.unit.benchmarks.workload_params import WORKLOADS

NUM_DRAWN = 6
WIRE_NAMES = {"float32": "FP32", "uint8": "UINT8", "int32": "INT32", "int64": "INT64", "bool": "BOOL", "bytes": "BYTES"}


@dataclass(frozen=True)
class Case:
    """A workload, some of its requests, their answers and branches, and its programs."""

    workload: Workload
    requests: Sequence[dict[str, np.ndarray[Any, Any]]]
    answers: Sequence[Tensors]
    branches: Sequence[str]
    programs: Mapping[str, LoadedProgram]


@pytest.fixture(scope="module", autouse=True)
def path() -> Iterator[None]:
    """Takes the folders off the path that examples and apps put there."""
    before = sys.path.copy()
    yield
    sys.path[:] = before


@pytest.fixture(scope="module", params=WORKLOADS)
def case(request: pytest.FixtureRequest, path: None) -> Case:
    """Makes a case; skips it where a model is not on this machine: weights are trained, or come in a package."""
    name: str = request.param
    found = workload(name)
    try:
        requests = found.draw(NUM_DRAWN, 0)
        answers, branches = answer_alone(found, requests)
        programs = {each: LoadedProgram(found, each) for each in found.programs}
    except (FileNotFoundError, ModuleNotFoundError) as error:
        pytest.skip(f"{name} cannot run here: {error}")
    return Case(found, requests, answers, branches, programs)


def assert_fits(tensors: Tensors, specs: Mapping[str, TensorSpec]) -> None:
    """Checks that tensors of one item are what was declared."""
    assert set(tensors) == set(specs)
    for name, spec in specs.items():
        array = tensors[name]
        if spec.dtype == "bytes":
            assert array.dtype == object, name
            assert all(isinstance(text, bytes) for text in array.ravel()), name
        else:
            assert array.dtype == spec.dtype, name
        assert array.ndim == len(spec.shape), name
        assert all(size in (-1, given) for size, given in zip(spec.shape, array.shape, strict=True)), name


def assert_same(found: Mapping[str, Any], expected: Tensors, tolerance: float) -> None:
    """Checks that numbers agree within the tolerance, and all else is equal."""
    assert set(found) == set(expected)
    for name, array in expected.items():
        got = np.asarray(found[name], array.dtype)
        if array.dtype.kind == "f":
            np.testing.assert_allclose(got, array, rtol=0, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(got, array, err_msg=name)


def test_requests_and_answers_are_what_the_workload_declares(case: Case) -> None:
    assert len(case.requests) == NUM_DRAWN
    for request, answer in zip(case.requests, case.answers, strict=True):
        assert_fits(request, case.workload.inputs)
        assert_fits(answer, case.workload.outputs)
    assert all(case.branches)


def test_draws_depend_on_the_seed_and_on_nothing_else(case: Case) -> None:
    def is_same(others: Sequence[Tensors]) -> bool:
        pairs = zip(case.requests, others, strict=True)
        return all(np.array_equal(one[name], other[name]) for one, other in pairs for name in one)

    assert is_same(case.workload.draw(NUM_DRAWN, 0))
    assert not is_same(case.workload.draw(NUM_DRAWN, 1))


def test_programs_take_and_return_what_they_declare(case: Case) -> None:
    async def call(program: str, /, **inputs: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        declared = case.workload.programs[program]
        assert_fits(inputs, declared.inputs)
        outputs = case.programs[program].run_items([inputs])[0]
        assert_fits(outputs, declared.outputs)
        return outputs

    async def answer(request: Tensors) -> None:
        await case.workload.flow(call, request)

    for request in case.requests:
        asyncio.run(answer(request))


def test_a_batch_of_requests_gets_the_answers_that_each_gets_alone(case: Case) -> None:
    together = answer_together(case.workload, case.programs, case.requests)
    for found, expected in zip(together, case.answers, strict=True):
        assert_fits(found, case.workload.outputs)
        assert_same(found, expected, case.workload.tolerance)


def test_the_workflow_gives_the_same_answers(case: Case) -> None:
    app = load(case.workload.app)
    for request, expected in zip(case.requests, case.answers, strict=True):
        assert_same(dyorc.run(app, **request), expected, case.workload.tolerance)


def test_the_workflow_declares_the_same_tensors_and_programs(case: Case) -> None:
    app = load(case.workload.app)
    assert isinstance(app, Workflow)
    assert app.name == case.workload.name
    assert _declared(app.signature.inputs) == _wire(case.workload.inputs)
    assert _declared(app.signature.outputs.tensors) == _wire(case.workload.outputs)
    found = {program.name: program for program in app.programs}
    assert set(found) == set(case.workload.programs)
    for name, program in case.workload.programs.items():
        assert _declared(found[name].signature.inputs) == _wire(program.inputs), name
        if found[name].options.batched:
            assert found[name].options.max_batch_size == program.max_batch_size, name
        else:
            assert program.max_batch_size == 1, name


def _wire(specs: Mapping[str, TensorSpec]) -> dict[str, tuple[str, list[int]]]:
    return {name: (WIRE_NAMES[spec.dtype], list(spec.shape)) for name, spec in specs.items()}


def _declared(specs: Sequence[DeclaredSpec]) -> dict[str, tuple[str, list[int]]]:
    return {spec.name: (str(spec.dtype), spec.wire_shape) for spec in specs}


def test_a_saved_pool_is_read_as_it_was(case: Case, tmp_path: Path) -> None:
    pool = Pool(inputs=case.requests, answers=case.answers, branches=case.branches, tolerance=case.workload.tolerance)
    pool.save(tmp_path / "pool.npz")
    read = Pool.load(tmp_path / "pool.npz")
    for found, expected in zip((*read.inputs, *read.answers), (*pool.inputs, *pool.answers), strict=True):
        assert {name: array.dtype for name, array in found.items()} == {name: array.dtype for name, array in expected.items()}
        assert_same(found, expected, tolerance=0)
    assert (list(read.branches), read.tolerance) == (list(pool.branches), pool.tolerance)


def test_an_unknown_workload_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'casade'; there are cascade, "):
        workload("casade")


def test_constants_are_those_of_the_examples() -> None:
    from benchmarks.workloads.cascade.workload import CONFIDENT
    from benchmarks.workloads.fanout.workload import CONFIDENT as PIECE_CONFIDENT
    from benchmarks.workloads.guarded.workload import MIN_HARM, REFUSAL
    from benchmarks.workloads.router.workload import TOPICS

    for name in ("digits", "guarded", "router"):
        use_example(name)
    digits_nets, guarded_nets, guarded_texts, router_texts = (
        pytest.importorskip(name) for name in ("digits_nets", "guarded_nets", "guarded_texts", "router_texts")
    )
    assert digits_nets.CONFIDENT == CONFIDENT == PIECE_CONFIDENT
    assert (guarded_nets.MIN_HARM, guarded_texts.REFUSAL) == (MIN_HARM, REFUSAL)
    assert router_texts.TOPICS == TOPICS


def test_a_harmful_message_is_refused_and_not_continued() -> None:
    from benchmarks.workloads.guarded.workload import MIN_HARM, REFUSAL

    asked: list[str] = []

    async def call(program: str, /, **_: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        asked.append(program)
        return {"score": np.array(MIN_HARM, np.float32)}

    async def answer() -> tuple[dict[str, np.ndarray[Any, Any]], str]:
        return await workload("guarded").flow(call, {"text": np.zeros(64, np.uint8)})

    found, branch = asyncio.run(answer())
    assert (found["continuation"].tobytes(), branch, asked) == (REFUSAL, "refused", ["guard"])


def test_pieces_of_a_strip_are_found_where_they_stand_and_padding_adds_none() -> None:
    from benchmarks.workloads.fanout.strips import MAX_PIECES, WIDTHS, draw_strip, find_pieces

    digit = np.zeros((8, 8), np.float32)
    digit[1:7, 2:6] = 1
    for num_pieces in (1, 2, 7, MAX_PIECES):
        strip = draw_strip(np.repeat(digit[np.newaxis], num_pieces, axis=0), np.random.default_rng(num_pieces))[0]
        found = find_pieces(strip)
        assert len(found) == num_pieces
        for at in found:
            np.testing.assert_allclose(strip[:, at : at + 8], digit, atol=0.1)
        width = next(width for width in WIDTHS if width >= strip.shape[1])
        assert find_pieces(np.pad(strip, [(0, 0), (0, width - strip.shape[1])])) == found
