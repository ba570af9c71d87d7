"""The second tier: random elements of a finite field, for each distinct step by itself and for small plans as a whole.

The first is the same compositional argument as the proof's, tried on random numbers instead of formulas, on whole small meshes
and somewhat larger shapes. The second depends on no argument at all: plan and program are run, and their results compared.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import prod

import numpy as np

from dyorc.planner.plan import Plan, Step
from dyorc.planner.plan.interpret import interpret
from dyorc.planner.program import TensorProgram
from dyorc.planner.program.evaluate import evaluate_with
from dyorc.planner.verify.algebra import NumbersAlgebra
from dyorc.planner.verify.cases import FAULTS, ApplyCase, Case, CasesOf, is_plain
from dyorc.planner.verify.field import Field
from dyorc.planner.verify.meanings import UnknownOperationError, meaning_of
from dyorc.planner.verify.numbers import Array
from dyorc.planner.verify.report import Finding, FindingKind, piece_text
from dyorc.planner.verify.running import Difference, differences, num_elements
from dyorc.planner.verify.smaller import shrink

_UNCUT = 3
_MAX_ELEMENTS = 2_000_000
"""Of one step that cannot be made smaller."""
MAX_WORK = 30_000_000
"""Elements that all steps of a plan make together: larger plans are not run as a whole."""


class FieldTier:
    """Tries distinct steps; remembers, across plans, which were right."""

    def __init__(self, seed: int = 0) -> None:
        self._draw = np.random.default_rng(seed)
        self._right: set[Case] = set()
        self.num_distinct = 0
        self.num_unknown = 0

    def check_steps(self, cases: CasesOf, plan: Plan) -> Iterator[Finding]:
        """Yields what is wrong with steps; of equal ones the first."""
        for number, step, case in cases.distinct:
            yield from self._check(number, step, case, plan)

    def _check(self, number: int, step: Step, case: Case, plan: Plan) -> Iterator[Finding]:
        if isinstance(case, ApplyCase) and is_plain(case):
            return
        small = _smaller(case) or case
        if small in self._right or num_elements(small) > _MAX_ELEMENTS:
            return
        self.num_distinct += 1
        try:
            wrong = next(differences(small, NumbersAlgebra(Field()), self._random), None)
        except UnknownOperationError:
            self.num_unknown += 1
            return
        except FAULTS as error:
            yield Finding(kind=FindingKind.CANNOT_RUN, step=number, detail=str(error))
            return
        if wrong:
            yield finding_of(number, step, plan, wrong)
        else:
            self._right.add(small)

    def _random(self, number: int, term: int, shape: tuple[int, ...], dtype: str) -> Array:
        return Field().random(shape, dtype, self._draw)

    def check_whole(self, program: TensorProgram, plan: Plan) -> Iterator[Finding]:
        """Runs a whole plan, and yields where its results are not the program's."""
        algebra, field = NumbersAlgebra(Field()), Field()
        sources = {name: field.random(v.shape, v.dtype, self._draw) for name in program.sources for v in [program.values[name]]}
        try:
            expected = evaluate_with(program, sources, algebra.compute)
        except UnknownOperationError:
            return
        try:
            results = interpret(plan, sources, algebra)
        except (*FAULTS, UnknownOperationError) as error:
            yield Finding(kind=FindingKind.CANNOT_RUN, detail=str(error))
            return
        for name in program.results:
            if name not in results:
                yield Finding(kind=FindingKind.CANNOT_RUN, detail=f"there is no result {name}")
            elif results[name].shape != expected[name].shape or (results[name] != expected[name]).any():
                yield _wrong_result(name, expected[name], results[name])


def _smaller(case: Case) -> Case | None:
    try:
        return shrink(case, _UNCUT)
    except FAULTS:
        return None


def _wrong_result(name: str, expected: Array, result: Array) -> Finding:
    if expected.shape != result.shape:
        return _wrong_shape(None, name, expected.shape, result.shape)
    index = tuple(int(i) for i in np.argwhere(expected != result)[0])
    return _unequal(None, name, index, expected[index], result[index])


def finding_of(
    number: int, step: Step, plan: Plan, difference: Difference, counterexample: Mapping[str, str] | None = None
) -> Finding:
    """Says where a step is wrong, in the plan's names.

    Args:
        number: Of the step.
        step: The step.
        plan: Its plan.
        difference: Where the step's case differs from the program.
        counterexample: Values of symbols at which the two differ, if a solver gave some.
    """
    tensor = step.outputs[difference.output]
    position = {axis.name: index for axis, index in zip(plan.mesh_of(tensor).axes, difference.position, strict=False)}
    subject = piece_text(tensor, position)
    if difference.is_shape:
        return _wrong_shape(number, subject, difference.expected, difference.actual)
    example = ", ".join(f"{name} = {value}" for name, value in list((counterexample or {}).items())[:6])
    return _unequal(number, subject, difference.index, difference.expected, difference.actual, example)


def _wrong_shape(step: int | None, subject: str, expected: Iterable[int], actual: Iterable[int]) -> Finding:
    detail = f"expected a piece of shape {list(expected)}, found {list(actual)}"
    return Finding(kind=FindingKind.WRONG_SHAPE, step=step, subject=subject, detail=detail)


def _unequal(
    step: int | None, subject: str, index: Iterable[int], expected: object, actual: object, example: str = ""
) -> Finding:
    detail = f"element {list(index)}: expected {expected}, found {actual}" + (f"; they differ at {example}" if example else "")
    return Finding(kind=FindingKind.UNEQUAL, step=step, subject=subject, detail=detail)


def can_run_whole(program: TensorProgram, plan: Plan) -> str:
    """Returns why a plan is not run as a whole, or an empty text."""
    work = 0
    for step in plan.steps:
        for tensor in step.outputs:
            if tensor and tensor in plan.tensors:
                mesh = plan.mesh_of(tensor)
                work += prod(plan.values[plan.tensors[tensor].value].shape) * len(mesh.ranks)
        if work > MAX_WORK:
            return "the plan is too large to be run as a whole"
    for node in program.nodes:
        try:
            meaning_of(node.op)
        except UnknownOperationError as error:
            return f"the plan is not run as a whole: {error}"
    return ""
