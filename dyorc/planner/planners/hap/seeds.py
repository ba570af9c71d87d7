"""Where other planners' choices are among a problem's alternatives, so that the search can begin with them."""

from dyorc.planner.planners.hap.forms import form_of
from dyorc.planner.planners.hap.problem import SynthesisChoice, SynthesisProblem, SynthesisSpace, token
from dyorc.planner.planners.strategy_assignment import StrategyAssignment


def numbers_of(space: SynthesisSpace, problem: SynthesisProblem, assignment: StrategyAssignment) -> tuple[int, ...] | None:
    """Returns the number of each choice's alternative; None if one of them is not allowed here."""
    forms = {name: form_of(placement) for name, placement in assignment.sources.items()}
    forms |= {token(name): form for name, form in forms.items()}
    numbers: list[int] = []
    for choice in problem.choices:
        number = _number(space, choice, assignment, forms)
        if number is None:
            return None
        numbers.append(number)
    return tuple(numbers)


def _number(space: SynthesisSpace, choice: SynthesisChoice, assignment: StrategyAssignment, forms: dict[str, int]) -> int | None:
    strategies = space.strategies.get(choice.name)
    if strategies is not None:
        strategy = assignment.strategies.get(choice.name)
        return strategies.index(strategy) if strategy in strategies else None
    for number, alternative in enumerate(choice.alternatives):
        if all(forms.get(name, form) == form for name, form in (*alternative.inputs, *alternative.outputs)):
            return number
    return None
