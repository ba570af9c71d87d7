"""Asks Z3 whether two formulas are equal for all numbers and functions."""

from enum import Enum, auto
from typing import Any

from dyorc.planner.verify.formulas import Formula, Formulas

_TIMEOUT_MS = 10_000


class SolverAnswer(Enum):
    """What the solver says."""

    EQUAL = auto()
    DIFFERENT = auto()
    UNKNOWN = auto()


def decide(formulas: Formulas, one: Formula, other: Formula) -> tuple[SolverAnswer, dict[str, str]]:
    """Decides whether two formulas are equal.

    Returns:
        The answer, and if they differ, values of unknowns at which they do.
    """
    import z3  # a tenth of a second to import, and rarely needed

    writer = _Writer(formulas, z3)
    solver = z3.Solver()
    solver.set("timeout", _TIMEOUT_MS)
    solver.add(writer.formula(one) != writer.formula(other), *writer.facts)
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
