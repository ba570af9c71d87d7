"""A problem's choices as moves on the open values: what frontier search and A* have in common.

A state says for each open value which forms are held of it, if it has been made, or are asked for, if only readers have been
decided. A value is open from the first to the last choice that touches it. A move knows values by their places among the open
ones, not by their names: the same part of every layer is the same move, and what is known of a move holds for all layers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from dyorc.planner.planners.hap.form_costs import NEVER, FormCosts, Options
from dyorc.planner.planners.hap.problem import SynthesisChoice, SynthesisProblem

State: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Touch:
    """What a move does with one value.

    Attributes:
        forms: What changing it costs.
        place: Where it is among the open values; None if it was not open.
        is_held: Whether it had been made, rather than asked for.
        is_made: Whether this move makes it, rather than asks for it.
        is_last: Whether it is not open afterwards.
    """

    forms: FormCosts
    place: int | None
    is_held: bool
    is_made: bool
    is_last: bool
    _known: dict[tuple[int, int], Options] = field(default_factory=dict[tuple[int, int], Options])

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two of them the same."""
        return id(self.forms), self.place, self.is_held, self.is_made, self.is_last

    def options(self, code: int, form: int) -> Options:
        """What the value's place in the state may be afterwards, with the cost of each."""
        options = self._known.get((code, form))
        if options is None:
            options = tuple((code, cost) for code, cost in self._options(code, form) if cost < NEVER)
            if self.is_last and options:
                options = ((0, min(cost for _, cost in options)),)
            self._known[code, form] = options
        return options

    def _options(self, code: int, form: int) -> Options:
        forms = self.forms
        if self.place is None:
            return ((forms.closure(1 << form) if self.is_made else forms.demand(1 << form), 0),)
        if self.is_held:
            return forms.with_one_more(code, form)
        return forms.with_all(1 << form, code) if self.is_made else ((forms.demand(code | 1 << form), 0),)


@dataclass(frozen=True, eq=False)
class SearchMove:
    """A choice, with the places of the values that it touches.

    Attributes:
        touches: The values.
        alternatives: For each, its cost and the forms in which it asks for or makes the values, in the order of `touches`.
        kept: The places of values that stay open, from before; after them come new ones, in the order of `touches`.
        after: For each value that is open afterwards, what changing it costs and whether it has been made.
    """

    touches: tuple[Touch, ...]
    alternatives: tuple[tuple[int, tuple[int, ...]], ...]
    kept: tuple[int, ...]
    after: tuple[tuple[FormCosts, bool], ...]
    _known: dict[tuple[State, tuple[int, ...] | None], Sequence[tuple[tuple[int, ...], int, int]]] = field(
        default_factory=dict[tuple[State, tuple[int, ...] | None], Sequence[tuple[tuple[int, ...], int, int]]], repr=False
    )

    @cached_property
    def least(self) -> int:
        """What it costs at least, if nothing had to be changed."""
        return min(cost for cost, _ in self.alternatives)

    def results(self, state: State, among: Sequence[int] | None = None) -> Iterator[tuple[State, int, int]]:
        """Yields states after the move, what each costs, and the alternative's number; of some alternatives only, if given."""
        before = tuple([state[place] for place in self.kept])
        for codes, total, number in self._choices(tuple([state[place] for place in self._read]), among):
            yield self._after(before, codes), total, number

    def _choices(self, held: State, among: Sequence[int] | None) -> Sequence[tuple[tuple[int, ...], int, int]]:
        """What becomes of the values that it touches, which many states hold alike: found once."""
        key = held, None if among is None else tuple(among)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = tuple(self._find_choices(held, among))
        return known

    def _find_choices(self, held: State, among: Sequence[int] | None) -> Iterator[tuple[tuple[int, ...], int, int]]:
        forms_of = iter(held)
        codes_held = [0 if touch.place is None else next(forms_of) for touch in self.touches]
        for number in range(len(self.alternatives)) if among is None else among:
            cost, forms = self.alternatives[number]
            partial: list[tuple[tuple[int, ...], int]] = [((), cost)]
            for touch, code_held, form in zip(self.touches, codes_held, forms, strict=True):
                options = touch.options(code_held, form)
                partial = [((*codes, code), so_far + step) for codes, so_far in partial for code, step in options]
            for codes, total in partial:
                yield codes, total, number

    @cached_property
    def _read(self) -> tuple[int, ...]:
        """The places of the values that it touches and that were open before."""
        return tuple(touch.place for touch in self.touches if touch.place is not None)

    @cached_property
    def _changed(self) -> tuple[tuple[int, int], ...]:
        """Which of the kept places are changed by which touch."""
        return tuple((self.kept.index(t.place), i) for i, t in enumerate(self.touches) if t.place is not None and not t.is_last)

    @cached_property
    def _new(self) -> tuple[int, ...]:
        return tuple(i for i, touch in enumerate(self.touches) if touch.place is None and not touch.is_last)

    def _after(self, before: State, codes: tuple[int, ...]) -> State:
        state = list(before)
        for place, index in self._changed:
            state[place] = codes[index]
        state += [codes[index] for index in self._new]
        return tuple(state)


def moves_of(problem: SynthesisProblem) -> tuple[SearchMove, ...]:
    """Turns choices into moves; equal ones are the same object."""
    mover = _Mover(problem)
    return tuple(mover.move(choice) for choice in problem.choices)


class _Mover:
    def __init__(self, problem: SynthesisProblem) -> None:
        self._problem = problem
        self._left: dict[str, int] = {}
        for choice in problem.choices:
            for name in _names(choice):
                self._left[name] = self._left.get(name, 0) + 1
        self._open: list[str] = []
        self._made: set[str] = set()
        self._known: dict[tuple[object, ...], SearchMove] = {}

    def move(self, choice: SynthesisChoice) -> SearchMove:
        names = _names(choice)
        outputs = {name for name, _ in choice.alternatives[0].outputs}
        touches = tuple(self._touch(name, name in outputs) for name in names)
        kept = tuple(i for i, name in enumerate(self._open) if name not in names or self._left[name])
        self._made |= outputs
        new = [name for name in names if name not in self._open and self._left[name]]
        self._open = [self._open[place] for place in kept] + new
        after = tuple((self._problem.forms[name], name in self._made) for name in self._open)
        alternatives = tuple((a.cost, tuple(form for _, form in (*a.inputs, *a.outputs))) for a in choice.alternatives)
        key = (tuple(t.key for t in touches), alternatives, kept, tuple((id(forms), is_held) for forms, is_held in after))
        return self._known.setdefault(key, SearchMove(touches, alternatives, kept, after))

    def _touch(self, name: str, is_made: bool) -> Touch:
        self._left[name] -= 1
        place = self._open.index(name) if name in self._open else None
        return Touch(self._problem.forms[name], place, name in self._made, is_made, not self._left[name])


def _names(choice: SynthesisChoice) -> tuple[str, ...]:
    first = choice.alternatives[0]
    return tuple(name for name, _ in (*first.inputs, *first.outputs))
