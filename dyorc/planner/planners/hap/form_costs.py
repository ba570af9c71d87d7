"""What changing from form to form costs, and the cheapest way to have several of them.

Costs are integers in femtoseconds, so that sums do not depend on their order. What is replicated can be cut and masked for
nothing: with it, a device holds all forms.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from dyorc.planner.planners.forms import TERM, WHOLE, forms_in

UNIT_S = 1e-15
NEVER = 1 << 256

Options: TypeAlias = tuple[tuple[int, int], ...]
"""Sets of forms that may be held afterwards, each with what that costs."""


def in_units(seconds: float) -> int:
    """Seconds as an integer."""
    return round(seconds / UNIT_S)


@dataclass(frozen=True)
class FormCosts:
    """The costs of changing forms, for all values that are alike.

    Attributes:
        table: From each form (row) to each (column), by one change; `NEVER` if no change leads there.
    """

    table: tuple[tuple[int, ...], ...]
    _between: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int], compare=False, repr=False)

    @cached_property
    def all(self) -> int:
        """The set of all forms."""
        return (1 << len(self.table)) - 1

    def closure(self, forms: int) -> int:
        """All forms that ranks hold if they hold these: everything, if the value is replicated and may be cut."""
        return self.all if forms & 1 and self.table[WHOLE][TERM] == 0 else forms

    def demand(self, forms: int) -> int:
        """The forms that have to be made for these: only the whole, if it is among them and may be cut."""
        return 1 if forms & 1 and self.table[WHOLE][TERM] == 0 else forms

    def step_cost(self, held: int, form: int) -> int:
        """The cost of one more form."""
        return min((self.table[f][form] for f in forms_in(held)), default=NEVER)

    def with_one_more(self, held: int, form: int) -> Options:
        """The ways to have a form: as it is, made directly, or by making the whole."""
        if held >> form & 1:
            return ((held, 0),)
        costs = {self.closure(held | 1 << form): self.step_cost(held, form)}
        whole = self.closure(held | 1)
        if whole >> form & 1:
            costs[whole] = min(self.step_cost(held, WHOLE), costs.get(whole, NEVER))
        return tuple((forms, cost) for forms, cost in costs.items() if cost < NEVER)

    def with_all(self, held: int, wanted: int) -> Options:
        """The ways to have several forms, those left out that cost more and hold no more than another."""
        costs = {self.closure(held): 0}
        for form in forms_in(wanted):
            after: dict[int, int] = {}
            for forms, cost in costs.items():
                for more, step in self.with_one_more(forms, form):
                    after[more] = min(after.get(more, NEVER), cost + step)
            costs = after
        ordered = sorted(costs.items(), key=lambda item: item[1])
        return tuple(
            (forms, cost)
            for i, (forms, cost) in enumerate(ordered)
            if not any(other & forms == forms for other, _ in ordered[:i])
        )

    def cost(self, held: int, wanted: int) -> int:
        """The cost of the cheapest way."""
        return min((cost for _, cost in self.with_all(held, wanted)), default=NEVER)

    def between(self, held: int, wanted: int) -> int:
        """An upper bound of the cost to have all of some forms if others are held."""
        bound = self._between.get((held, wanted))
        if bound is None:
            bound = self._between[held, wanted] = self._find_between(held, wanted)
        return bound

    def _find_between(self, held: int, wanted: int) -> int:
        missing = wanted & ~self.closure(held)
        if not missing:
            return 0
        whole = self.step_cost(held, WHOLE) if self.table[WHOLE][TERM] == 0 else NEVER
        return min(whole, sum(self.step_cost(held, form) for form in forms_in(missing)))

    def ways(self, held: int, wanted: int) -> list[tuple[int, int]]:
        """The cheapest way, as steps from one form to another."""
        steps: list[tuple[int, int]] = []
        total, missing = self.cost(held, wanted), wanted & ~self.closure(held)
        while missing:
            for form in dict.fromkeys((WHOLE, *forms_in(missing))):
                source = min(forms_in(held), key=lambda f: self.table[f][form])
                step, then = self.table[source][form], self.closure(held | 1 << form)
                if then != held and step + self.cost(then, missing) == total:
                    break
            else:
                raise AssertionError("a way of known cost is made of steps")
            steps.append((source, form))
            total, held = total - step, then
            missing &= ~held
        return steps
