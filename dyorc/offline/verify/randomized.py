"""The second tier: random elements of a finite field, for each distinct step by itself and for small plans as a whole.

The first is the same compositional argument as the proof's, tried on random numbers instead of formulas, on whole small meshes
and somewhat larger shapes. The second depends on no argument at all: plan and program are run, and their results compared.
"""

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from dyorc.offline.plan import Plan, Step
from dyorc.offline.plan.interpret import interpret
from dyorc.offline.program import TensorProgram
from dyorc.offline.program.evaluate import evaluate_with
from dyorc.offline.verify.algebra import NumbersAlgebra
from dyorc.offline.verify.cases import FAULTS, ApplyCase, Case, CasesOf, is_plain
from dyorc.offline.verify.field import Field
from dyorc.offline.verify.meanings import UnknownOperationError, meaning_of
from dyorc.offline.verify.numbers import Array
from dyorc.offline.verify.report import CannotRun, Finding, Tier, Unequal, WrongShape
from dyorc.offline.verify.running import Difference, differences, num_elements
from dyorc.offline.verify.smaller import smaller

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
            yield CannotRun(tier=Tier.FIELD, step=number, reason=str(error))
            return
        if wrong:
            yield finding_of(Tier.FIELD, number, step, plan, wrong)
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
            found = interpret(plan, sources, algebra)
        except (*FAULTS, UnknownOperationError) as error:
            yield CannotRun(tier=Tier.FIELD, step=None, reason=str(error))
            return
        for name in program.results:
            if name not in found:
                yield CannotRun(tier=Tier.FIELD, step=None, reason=f"there is no result {name}")
            elif found[name].shape != expected[name].shape or (found[name] != expected[name]).any():
                yield _of_result(name, expected[name], found[name])


def _smaller(case: Case) -> Case | None:
    try:
        return smaller(case, _UNCUT)
    except FAULTS:
        return None


def _of_result(name: str, expected: Array, found: Array) -> Finding:
    if expected.shape != found.shape:
        return WrongShape(tier=Tier.FIELD, step=None, tensor=name, position={}, expected=expected.shape, found=found.shape)
    index = tuple(int(i) for i in np.argwhere(expected != found)[0])
    return Unequal(
        tier=Tier.FIELD,
        step=None,
        tensor=name,
        position={},
        index=index,
        expected=str(expected[index]),
        found=str(found[index]),
    )


def finding_of(
    tier: Tier, number: int, step: Step, plan: Plan, wrong: Difference, counterexample: Mapping[str, str] | None = None
) -> Finding:
    """Says where a step is wrong, in the plan's names."""
    tensor = step.outputs[wrong.output]
    axes = plan.mesh_of(tensor).axes
    position = {axis.name: index for axis, index in zip(axes, wrong.position, strict=False)}
    if wrong.is_shape:
        return WrongShape(tier=tier, step=number, tensor=tensor, position=position, expected=wrong.expected, found=wrong.found)
    return Unequal(
        tier=tier,
        step=number,
        tensor=tensor,
        position=position,
        index=wrong.index,
        expected=str(wrong.expected),
        found=str(wrong.found),
        counterexample=counterexample or {},
    )


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
