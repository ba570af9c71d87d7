"""The forms in which devices can hold a value along one mesh axis, what changing between them costs, and the cheapest way to have
several of them.

A form is a small number: 0 for replicated, 1 for a partial sum, 2 + dim for a shard. Sets of forms are bits of an integer. Costs
are integers in femtoseconds, so that sums do not depend on their order. What is replicated can be cut and masked for nothing:
with it, a device holds all forms.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from dyorc.planner.program import PARTIAL, REPLICATE, Partial, Placement, Replicate, Shard

UNIT_S = 1e-15
NEVER = 1 << 256
WHOLE, TERM = 0, 1

Options: TypeAlias = tuple[tuple[int, int], ...]
"""Sets of forms that may be held afterwards, each with what that costs."""


def form_of(placement: Placement) -> int:
    """The number of a placement."""
    match placement:
        case Replicate():
            return WHOLE
        case Partial():
            return TERM
        case Shard(dim):
            return 2 + dim


def placement_of(form: int) -> Placement:
    """The placement of a number."""
    return REPLICATE if form == WHOLE else PARTIAL if form == TERM else Shard(form - 2)


def in_units(seconds: float) -> int:
    """Seconds as an integer."""
    return round(seconds / UNIT_S)


@dataclass(frozen=True)
class Forms:
    """What changing forms costs, for all values that are alike.

    Attributes:
        table: From each form (row) to each (column), by one change; `NEVER` if there is none.
    """

    table: tuple[tuple[int, ...], ...]
    _between: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int], compare=False, repr=False)

    @cached_property
    def all(self) -> int:
        """The set of all forms."""
        return (1 << len(self.table)) - 1

    def closed(self, forms: int) -> int:
        """What is held if these are: everything, if the value is replicated and may be cut."""
        return self.all if forms & 1 and self.table[WHOLE][TERM] == 0 else forms

    def demanded(self, forms: int) -> int:
        """What has to be made if these are asked for: nothing besides the whole, which the others follow from."""
        return 1 if forms & 1 and self.table[WHOLE][TERM] == 0 else forms

    def step_s(self, held: int, form: int) -> int:
        """The cost of one more form."""
        return min((self.table[f][form] for f in bits(held)), default=NEVER)

    def with_one_more(self, held: int, form: int) -> Options:
        """The ways to have a form: as it is, made directly, or by making the whole."""
        if held >> form & 1:
            return ((held, 0),)
        costs = {self.closed(held | 1 << form): self.step_s(held, form)}
        whole = self.closed(held | 1)
        if whole >> form & 1:
            costs[whole] = min(self.step_s(held, WHOLE), costs.get(whole, NEVER))
        return tuple((forms, cost) for forms, cost in costs.items() if cost < NEVER)

    def with_all(self, held: int, wanted: int) -> Options:
        """The ways to have several forms, those left out that cost more and hold no more than another."""
        costs = {self.closed(held): 0}
        for form in bits(wanted):
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
        """A bound of what it costs to have all of some forms if others are held."""
        bound = self._between.get((held, wanted))
        if bound is None:
            bound = self._between[held, wanted] = self._find_between(held, wanted)
        return bound

    def _find_between(self, held: int, wanted: int) -> int:
        missing = wanted & ~self.closed(held)
        if not missing:
            return 0
        whole = self.step_s(held, WHOLE) if self.table[WHOLE][TERM] == 0 else NEVER
        return min(whole, sum(self.step_s(held, form) for form in bits(missing)))

    def ways(self, held: int, wanted: int) -> list[tuple[int, int]]:
        """The cheapest way, as steps from one form to another."""
        steps: list[tuple[int, int]] = []
        total, missing = self.cost(held, wanted), wanted & ~self.closed(held)
        while missing:
            for form in dict.fromkeys((WHOLE, *bits(missing))):
                source = min(bits(held), key=lambda f: self.table[f][form])
                step, then = self.table[source][form], self.closed(held | 1 << form)
                if then != held and step + self.cost(then, missing) == total:
                    break
            else:
                raise AssertionError("a way of known cost is made of steps")
            steps.append((source, form))
            total, held = total - step, then
            missing &= ~held
        return steps


def bits(forms: int) -> list[int]:
    """The forms of a set."""
    return [form for form in range(forms.bit_length()) if forms >> form & 1]
