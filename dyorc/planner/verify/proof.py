"""The third tier: a proof of each distinct step, on small shapes and along one axis of its mesh at a time.

The argument. A plan is right if its structure is (structure.py) and each step takes valid pieces to valid pieces. An `Apply` on
a mesh with several axes is right if it is right along each axis by itself: the pieces along the outermost axis are whole values
of smaller shapes for the axes inside, and the operation on them is the same, so the claim follows by induction over the axes. A
division into n pieces is one into two whose second part is divided again; so two pieces prove any number, by induction over n
(three are used where a share may be nothing, so that an empty share has its own place). So no step needs all its ranks, and
a mesh of thousands costs what a mesh of two does. A collective combines pieces that differ along its axis alone; its proof keeps
all axes, with two steps each, because axes that cut one dimension inside each other meet in it.

The assumption (TrainVerify, SOSP'25, appendix C; its Lean proof is a draft, and so is this): operations are SIMD. Each output
element is one kernel of input elements at affine positions, the same kernel at each, and sums are associative and commutative.
Then equality on small shapes that keep which extents are equal, which are one, and all cuts, is equality on all shapes of that
structure. Random numbers are functions of positions, given where a piece begins, so they are affine, too. Other operations that
depend on absolute positions (`arange`, masks) are only ever computed whole; the finite field runs
small plans at their full shapes, and would show an operation that is not SIMD. Numbers are real: rounding is outside the claim.
Integers that overflow and inputs that make a result infinite are, too.

Formulas in normal form close almost every claim. What is left goes to Z3, which shows equality or gives a counterexample.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from dyorc.planner.plan import Plan, Step
from dyorc.planner.verify.algebra import NumbersAlgebra
from dyorc.planner.verify.cases import FAULTS, ApplyCase, Case, CasesOf, along, is_plain
from dyorc.planner.verify.formulas import Formula, Formulas
from dyorc.planner.verify.meanings import UnknownOperationError
from dyorc.planner.verify.numbers import Array
from dyorc.planner.verify.randomized import finding_of
from dyorc.planner.verify.report import Finding, FindingKind
from dyorc.planner.verify.running import Difference, differences, num_elements
from dyorc.planner.verify.smaller import shrink
from dyorc.system import extras

_UNCUT = 2
_MAX_ELEMENTS = 4_000
"""Of a step that cannot be made smaller: formulas cost a thousand times what numbers do."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is known of a small case: nothing is wrong, or a difference, or a reason."""

    difference: Difference | None = None
    counterexample: tuple[tuple[str, str], ...] = ()
    fault: str = ""
    is_unknown: bool = False


class ProofTier:
    """Proves distinct steps; remembers what it has proved, so that a second plan of a program costs little."""

    def __init__(self) -> None:
        self._verdicts: dict[Hashable, _Verdict] = {}
        self.num_distinct = 0
        self.num_solver = 0

    def check_steps(self, cases: CasesOf, plan: Plan) -> Iterator[Finding]:
        """Yields what is wrong or not proved; of equal steps the first."""
        for number, step, case in cases.distinct:
            yield from self._check(number, step, case, plan)

    def _check(self, number: int, step: Step, case: Case, plan: Plan) -> Iterator[Finding]:
        for part in _parts_of(case):
            verdict = self._verdict(part)
            if verdict.difference:
                yield finding_of(number, step, plan, verdict.difference, dict(verdict.counterexample))
            elif verdict.fault:
                kind = FindingKind.UNPROVED if verdict.is_unknown else FindingKind.CANNOT_RUN
                yield Finding(kind=kind, step=number, detail=verdict.fault)
            if verdict != _Verdict():
                return

    def _verdict(self, case: Case) -> _Verdict:
        if isinstance(case, ApplyCase) and is_plain(case):
            return _Verdict()
        try:
            small = shrink(case, _UNCUT) or case
        except FAULTS:
            small = case
        if small not in self._verdicts:
            self._verdicts[small] = self._prove(small)
        return self._verdicts[small]

    def _prove(self, case: Case) -> _Verdict:
        if num_elements(case) > _MAX_ELEMENTS:
            return _Verdict(fault="its structure cannot be kept on smaller shapes", is_unknown=True)
        self.num_distinct += 1
        formulas = Formulas()

        def unknown(number: int, term: int, shape: tuple[int, ...], dtype: str) -> Array:
            return formulas.unknowns(("x", number, term), shape, dtype)

        try:
            for difference in differences(case, NumbersAlgebra(formulas), unknown):
                if verdict := self._decide(formulas, difference):
                    return verdict
        except UnknownOperationError as error:
            return _Verdict(fault=str(error), is_unknown=True)
        except FAULTS as error:
            return _Verdict(fault=str(error) or type(error).__name__)
        return _Verdict()

    def _decide(self, formulas: Formulas, difference: Difference) -> _Verdict | None:
        """Asks the solver about two formulas whose normal forms differ; None if it shows that they are equal."""
        if difference.is_shape:
            return _Verdict(difference)
        assert isinstance(difference.expected, Formula)
        assert isinstance(difference.actual, Formula)
        self.num_solver += 1
        answer, example = decide(formulas, difference.expected, difference.actual)
        if answer is SolverAnswer.EQUAL:
            return None
        if answer is SolverAnswer.UNKNOWN:
            return _Verdict(fault="the solver has not decided", is_unknown=True)
        named = Difference(
            output=difference.output,
            position=difference.position,
            index=difference.index,
            expected=formulas.text(difference.expected),
            actual=formulas.text(difference.actual),
        )
        return _Verdict(named, tuple(example.items()))


def _parts_of(case: Case) -> list[Case]:
    if not isinstance(case, ApplyCase):
        return [case]
    longer = [axis for axis, line in enumerate(case.axes) if line.size > 1]  # on an axis of one step all placements are one
    return [along(case, axis) for axis in (longer or [0] if case.reference else longer)]


_TIMEOUT_MS = 10_000


class SolverAnswer(Enum):
    """What the solver says."""

    EQUAL = auto()
    DIFFERENT = auto()
    UNKNOWN = auto()


def decide(formulas: Formulas, first: Formula, second: Formula) -> tuple[SolverAnswer, dict[str, str]]:
    """Decides whether two formulas are equal.

    Returns:
        The answer, and if they differ, values of unknowns at which they do.
    """
    extras.require("planner", "the proof of this plan")
    import z3  # a tenth of a second to import, and rarely needed

    writer = _Writer(formulas, z3)
    solver = z3.Solver()
    solver.set("timeout", _TIMEOUT_MS)
    solver.add(writer.formula(first) != writer.formula(second), *writer.facts)
    result = solver.check()
    if result == z3.unsat:
        return SolverAnswer.EQUAL, {}
    if result != z3.sat:
        return SolverAnswer.UNKNOWN, {}
    model = solver.model()
    counterexample = {name: str(model.eval(unknown, model_completion=True)) for name, unknown in sorted(writer.unknowns.items())}
    return SolverAnswer.DIFFERENT, counterexample


class _Writer:
    """Writes formulas for Z3: unknown functions are uninterpreted, truth values are 0 or 1."""

    def __init__(self, formulas: Formulas, z3: Any) -> None:
        self._formulas = formulas
        self._z3 = z3
        self._atoms: dict[int, Any] = {}
        self._functions: dict[tuple[object, int], Any] = {}
        self.unknowns: dict[str, Any] = {}
        self.facts: list[Any] = []

    def formula(self, formula: Formula) -> Any:
        z3 = self._z3
        total = z3.RealVal(0)
        for monomial, factor in formula.terms.items():
            product = z3.RealVal(str(factor))
            for atom in monomial:
                product = product * self._atom(atom)
            total = total + product
        return total

    def _atom(self, number: int) -> Any:
        if number not in self._atoms:
            z3, atom = self._z3, self._formulas.atoms[number]
            if atom.arguments:
                key = (atom.tag, len(atom.arguments))
                if key not in self._functions:
                    sorts = [z3.RealSort()] * (len(atom.arguments) + 1)
                    self._functions[key] = z3.Function(f"f{len(self._functions)}", *sorts)
                made = self._functions[key](*(self.formula(argument) for argument in atom.arguments))
            else:
                name = self._formulas.name(number)
                made = self.unknowns[name] = z3.Real(f"{name}#{number}")
            if number in self._formulas.truths:
                self.facts.append(z3.Or(made == 0, made == 1))
            self._atoms[number] = made
        return self._atoms[number]
