"""The search: a Pareto dynamic program over the cuts of the program's order (HiDup, SoCC'22, section 4, theorem 1).

A state is what the rest of the program can see of a prefix: in which placements each tensor that is still needed exists, and
which of them the open stage makes, so that it cannot communicate them yet. Of prefixes in the same state, the search keeps those
which may still turn out quickest (clock.py). The number of states can grow with the width of the graph; `max_states` keeps the
best-looking states, where the communication that the backward pass will need is counted when the forward pass makes it needed (as
HiDup counts a reform together with its conjugate). Without a limit the search is exact for the order and the costs it is given.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import NamedTuple

from dyorc.errors import PlanError
from dyorc.planner.plan import Algorithm
from dyorc.planner.planners.forms import TERM, WHOLE, form_of, placement_of
from dyorc.planner.planners.hidup.backward_costs import BackwardCosts
from dyorc.planner.planners.hidup.clock import Clock, is_ahead
from dyorc.planner.planners.hidup.items import Item, Items, NodeItem, ReductionItem, RegroupItem
from dyorc.planner.planners.hidup.microbatch_costs import Conversion, MicrobatchCosts, TimedTensor
from dyorc.planner.planners.strategy_assignment import StrategyAssignment
from dyorc.planner.program import REPLICATE, Placement, Strategy

Forms = tuple[int, ...]
"""The placements in which a tensor exists, as numbers; the first is the one in which it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRecord:
    """What one item does in a program that was found.

    Attributes:
        item: The item.
        strategy: Of a node, along space.
        conversions: Its communication, at the start of its stage; of a `ReductionItem`, once both microbatches are through.
        begins: Sources that it is the first to use, and how they lie.
        opens: Whether a stage begins with it.
    """

    item: Item
    strategy: Strategy | None = None
    conversions: tuple[Conversion, ...] = ()
    begins: tuple[tuple[TimedTensor, Placement], ...] = ()
    opens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplexProgram:
    """A complete program.

    Attributes:
        records: One for each item.
        cost_s: Its psi.
    """

    records: tuple[ItemRecord, ...]
    cost_s: float


@dataclass(slots=True)
class _State:
    forms: dict[TimedTensor, Forms]
    fresh: frozenset[TimedTensor]
    key: int
    clock: Clock
    ahead_s: float = 0.0  # what the backward pass will have to communicate
    parent: "_State | None" = None
    record: ItemRecord | None = None
    history: list[float] | None = None
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class _Try:
    """A strategy of a node, made ready."""

    strategy: Strategy
    comp_s: float
    ahead_s: float
    wanted: tuple[tuple[TimedTensor, int], ...]
    made: tuple[tuple[TimedTensor, int], ...]


@dataclass(slots=True)
class _Way:
    """One way to do an item from a state, before it is known whether to open a stage."""

    strategy: Strategy | None = None
    comp_s: float = 0.0
    first_s: float = 0.0
    second_s: float = 0.0
    waiting_s: float = 0.0
    ahead_s: float = 0.0
    must_open: bool = False
    conversions: list[Conversion] = field(default_factory=list[Conversion])
    beginnings: list[tuple[TimedTensor, int]] = field(default_factory=list[tuple[TimedTensor, int]])
    forms: dict[TimedTensor, Forms] = field(default_factory=dict[TimedTensor, Forms])
    made: list[TimedTensor] = field(default_factory=list[TimedTensor])


class _Candidate(NamedTuple):
    """A way from a state, and how far it leads."""

    bounds: tuple[float, ...]
    state: _State
    way: _Way
    opens: bool
    clock: Clock


class ParetoSearch:
    """Searches one program under given costs."""

    def __init__(
        self,
        items: Items,
        costs: MicrobatchCosts,
        *,
        max_states: int | None = None,
        axes: Set[int] | None = None,
        among: Mapping[str, Set[Strategy]] | None = None,
        known: DuplexProgram | None = None,
        fixed: StrategyAssignment | None = None,
    ) -> None:
        """Makes a search.

        Args:
            items: The program.
            costs: What it costs.
            max_states: How many states are kept at each cut; all if None.
            axes: The axes that nodes may be split along; any if None.
            among: The strategies that nodes may take; any if None.
            known: A program whose states are always kept, and whose strategies are allowed: what is found is no slower.
            fixed: Strategies that are given; the search then chooses only stages and conversions.
        """
        self._items = items
        self._axes = axes
        self._among = among
        self._known = known
        self._fixed = fixed
        self._costs = costs
        self._max_states = max_states
        self._foresight = BackwardCosts(items, costs)
        self._loose = {t for t in items.sources if t not in items.owners and t.value not in items.hints}
        self._tries = [
            self._strategies_of(index, item) if isinstance(item, NodeItem) else [] for index, item in enumerate(items.items)
        ]
        self._conversions: dict[tuple[TimedTensor, int, int], Conversion | None] = {}
        self._sliced: dict[tuple[TimedTensor, int, int], float] = {}
        self._begun: dict[tuple[TimedTensor, int], list[int]] = {}
        records = known.records if known else ()
        self._held = {tensor: form_of(placement) for record in reversed(records) for tensor, placement in reversed(record.begins)}
        self._dying: dict[int, list[TimedTensor]] = {}
        for tensor, index in items.last_use.items():
            self._dying.setdefault(index, []).append(tensor)

    def run(self, tick: Callable[[int, int], None] | None = None) -> DuplexProgram:
        """Returns the quickest program.

        Args:
            tick: Called after each item with its index and how many there are; what it raises ends the search.

        Raises:
            PlanError: No program was found, which only hints can cause.
        """
        states = [_State({}, frozenset(), 0, Clock())]
        states[0].is_known = self._known is not None
        for index, item in enumerate(self._items.items):
            states = self._after(states, index, item)
            if not states:
                raise PlanError(f"no way was found to reach {item}: hints contradict each other")
            if tick:
                tick(index, len(self._items.items))
        best = min(states, key=lambda state: state.clock.psi_s)
        return DuplexProgram(records=tuple(_records(best)), cost_s=best.clock.psi_s)

    def _after(self, states: list[_State], index: int, item: Item) -> list[_State]:
        ahead: dict[int, list[_Candidate]] = {}
        known: tuple[int, tuple[float, ...]] | None = None
        for state in states:
            for way in self._ways(state, index, item):
                for opens in self._openings(state, way):
                    clock = (state.clock.open_stage() if opens else state.clock).after(way.first_s, way.second_s, way.comp_s)
                    clock = clock._replace(waiting_s=clock.waiting_s + way.waiting_s)
                    key, bounds = self._key(state, way, index, opens), clock.bounds()
                    rivals = ahead.setdefault(key, [])
                    if state.is_known and self._is_known(index, way, opens):
                        known = key, bounds
                    if not any(is_ahead(rival.bounds, bounds) for rival in rivals):
                        rivals[:] = [rival for rival in rivals if not is_ahead(bounds, rival.bounds)]
                        rivals.append(_Candidate(bounds, state, way, opens, clock))
        return self._kept([candidate for rivals in ahead.values() for candidate in rivals], index, self._rival(ahead, known))

    def _rival(self, ahead: dict[int, list[_Candidate]], known: tuple[int, tuple[float, ...]] | None) -> _Candidate | None:
        """The state of the program that is known already, or one like it that is never behind."""
        return next(rival for rival in ahead[known[0]] if is_ahead(rival.bounds, known[1])) if known else None

    def _is_known(self, index: int, way: _Way, opens: bool) -> bool:
        assert self._known
        record = self._known.records[index]
        begins = tuple((tensor, form_of(placement)) for tensor, placement in record.begins)
        return (record.strategy, record.opens, begins) == (way.strategy, opens, tuple(way.beginnings))

    def _kept(self, candidates: list[_Candidate], index: int, known: _Candidate | None) -> list[_State]:
        if self._max_states is not None and len(candidates) > self._max_states:
            candidates.sort(key=lambda each: self._promise(each, index))
            kept = candidates[: self._max_states]
            candidates = kept if known is None or known in kept else [*kept, known]
        states = [self._state(each, index) for each in candidates]
        for candidate, state in zip(candidates, states, strict=True):
            state.is_known = candidate is known
        return states

    def _promise(self, each: _Candidate, index: int) -> float:
        ahead_s = each.state.ahead_s + each.way.ahead_s
        return each.clock.psi_s + self._foresight.left(index, ahead_s, each.state.history)

    def _openings(self, state: _State, way: _Way) -> tuple[bool, ...]:
        if way.must_open:
            return (True,)
        has_reason = bool(way.first_s or way.second_s or (state.clock.waiting_s and way.comp_s))
        return (False, True) if has_reason and state.clock.comp_s else (False,)

    # -- ways ------------------------------------------------------------------------------------------------------------------

    def _strategies_of(self, index: int, item: NodeItem) -> list[_Try]:
        tries: list[_Try] = []
        known = self._known.records[index].strategy if self._known else None
        for strategy in item.strategies:
            if self._fixed is not None and strategy != self._fixed.strategies.get(item.node.name):
                continue
            if strategy != known and not self._is_allowed(item.node.name, strategy):
                continue
            wanted = {t: form_of(p) for t, p in zip(item.inputs, strategy.inputs, strict=True)}
            made = tuple((t, form_of(p)) for t, p in zip(item.outputs, strategy.outputs, strict=True) if t)
            comp_s, ahead_s = self._costs.compute_s(item.node, strategy), self._foresight.of(item, strategy)
            tries.append(_Try(strategy, comp_s, ahead_s, tuple(wanted.items()), made))
        return tries

    def _is_allowed(self, node: str, strategy: Strategy) -> bool:
        if self._among is not None and strategy not in self._among.get(node, ()):
            return False
        return self._axes is None or strategy.axis is None or strategy.axis in self._axes

    def _ways(self, state: _State, index: int, item: Item) -> list[_Way]:
        match item:
            case NodeItem():
                if self._max_states is not None and not self._foresight.is_heavy(item):
                    known = self._known.records[index].strategy if self._known and state.is_known else None
                    tries = [(each, each.strategy is not known) for each in self._tries[index]]
                    free = [way for each, is_free in tries for way in self._ways_to_run(state, each, is_free=is_free)]
                    if free:
                        return free
                return [way for each in self._tries[index] for way in self._ways_to_run(state, each)]
            case RegroupItem():
                way = _Way(must_open=item.is_waiting and item.source in state.fresh)
                if item.source in state.fresh and not item.is_waiting:
                    way.made.append(item.target)  # a part of what this stage computes is not there when the stage begins
                if item.source not in state.forms:
                    way.beginnings.append((item.source, WHOLE))
                way.forms[item.target] = way.forms[item.source] = state.forms.get(item.source, (WHOLE,))
                return [way]
            case ReductionItem():
                return self._ways_to_settle(state, item)

    def _ways_to_settle(self, state: _State, item: ReductionItem) -> list[_Way]:
        way = _Way()
        owner = state.forms[item.owner][0] if item.owner in state.forms else WHOLE
        if item.owner not in state.forms:
            way.beginnings.append((item.owner, owner))
        if not self._convert(way, item.target, state.forms[item.source], owner):
            return []
        way.waiting_s, way.first_s, way.second_s = way.second_s, 0.0, 0.0
        return [way]

    def _ways_to_run(self, state: _State, each: _Try, *, is_free: bool = False) -> Iterator[_Way]:
        """Yields the ways of a strategy; if it must be free, only ways without conversions."""
        if is_free and any(map(partial(self._must_convert, state), each.wanted)):
            return
        new = [pair for pair in each.wanted if pair[0] not in state.forms and pair[0] in self._items.sources]
        for beginning in product(*(self._beginnings(tensor, wanted) for tensor, wanted in new)):
            way = _Way(each.strategy, each.comp_s, ahead_s=each.ahead_s)
            for (tensor, _), number in zip(new, beginning, strict=True):
                way.beginnings.append((tensor, number))
                way.forms[tensor] = (number,)
            for tensor, wanted in each.wanted:
                if not self._reach(state, way, tensor, wanted, is_free):
                    break
            else:
                for output, number in each.made:
                    way.forms[output] = (number,)
                    way.made.append(output)
                yield way

    def _must_convert(self, state: _State, wanted: tuple[TimedTensor, int]) -> bool:
        """Whether a tensor is in another placement than wanted, so that no way to begin helps."""
        forms = state.forms.get(wanted[0])
        return forms is not None and wanted[1] not in forms and WHOLE not in forms and wanted[0] not in self._loose

    def _beginnings(self, tensor: TimedTensor, wanted: int) -> list[int]:
        key = (tensor, wanted)
        if key not in self._begun:
            self._begun[key] = self._find_beginnings(tensor, wanted)
        return self._begun[key]

    def _find_beginnings(self, tensor: TimedTensor, wanted: int) -> list[int]:
        """How a source may lie when a step begins. What results belong to lies one way; anything else lies as it is wanted."""
        if tensor.value in self._items.hints:
            return [form_of(self._items.hints[tensor.value])]
        if self._fixed is not None and tensor in self._items.owners:
            return [form_of(self._fixed.sources[tensor.value])]
        if tensor not in self._items.owners or wanted > TERM:
            return [wanted]
        if wanted == TERM:
            return [WHOLE]
        shards = map(form_of, self._foresight.shards(tensor, is_exact=self._max_states is None))
        return list(dict.fromkeys((wanted, *shards, *self._known_beginning(tensor, wanted))))

    def _known_beginning(self, tensor: TimedTensor, wanted: int) -> tuple[int, ...]:
        number = self._held.get(tensor, wanted)
        return (number,) if number > TERM else ()

    def _reach(self, state: _State, way: _Way, tensor: TimedTensor, wanted: int, is_free: bool) -> bool:
        forms = way.forms.get(tensor) or state.forms[tensor]
        if wanted in forms:
            return True
        if tensor in self._loose:
            way.beginnings.append(
                (tensor, wanted)
            )  # an input or a constant can be there in several placements from the beginning
            way.forms[tensor] = _with(forms, wanted)
            return True
        if is_free and WHOLE not in forms:
            return False
        num_before = len(way.conversions)
        if not self._convert(way, tensor, forms, wanted):
            return False
        if len(way.conversions) == num_before:
            way.ahead_s += self._sliced_back_s(tensor, wanted)
        else:
            way.must_open |= tensor in state.fresh
            way.ahead_s += self._foresight.back(way.conversions[-1])
            way.forms[tensor] = _with(forms, wanted)
        return True

    def _sliced_back_s(self, tensor: TimedTensor, wanted: int) -> float:
        key = (tensor, WHOLE, wanted)
        if key not in self._sliced:
            self._sliced[key] = self._foresight.back(Conversion(tensor, REPLICATE, placement_of(wanted), Algorithm.PADDED, 0.0))
        return self._sliced[key]

    def _convert(self, way: _Way, tensor: TimedTensor, forms: Forms, wanted: int) -> bool:
        """Adds the cheapest conversion, if one is needed; False if no conversion leads there."""
        if wanted in forms or WHOLE in forms:
            return True
        conversions = [c for before in forms if (c := self._conversion(tensor, before, wanted))]
        if not conversions:
            return False
        best = conversions[0] if len(conversions) == 1 else min(conversions, key=lambda conversion: conversion.cost_s)
        way.conversions.append(best)
        is_late = tensor.is_once and tensor not in self._items.sources
        way.first_s += 0.0 if is_late else best.cost_s
        way.second_s += best.cost_s if is_late or not tensor.is_once else 0.0
        return True

    def _conversion(self, tensor: TimedTensor, before: int, after: int) -> Conversion | None:
        key = (tensor, before, after)
        if key not in self._conversions:
            self._conversions[key] = self._costs.conversion(tensor, placement_of(before), placement_of(after))
        return self._conversions[key]

    # -- states ----------------------------------------------------------------------------------------------------------------

    def _key(self, state: _State, way: _Way, index: int, opens: bool) -> int:
        """A hash of the state that a way leads to, without building the state."""
        dying = self._dying.get(index, ())
        key = state.key
        if opens:
            for tensor in state.fresh:
                key ^= hash((tensor, "fresh"))
        for tensor, forms in way.forms.items():
            if tensor in state.forms:
                key ^= _hash(tensor, state.forms[tensor])
            if tensor not in dying:
                key ^= _hash(tensor, forms)
        for tensor in way.made:
            if tensor not in dying:
                key ^= hash((tensor, "fresh"))
        for tensor in dying:
            if tensor in state.forms and tensor not in way.forms:
                key ^= _hash(tensor, state.forms[tensor])
            if tensor in state.fresh and not opens:
                key ^= hash((tensor, "fresh"))
        return key

    def _state(self, candidate: _Candidate, index: int) -> _State:
        _, state, way, opens, clock = candidate
        item, dying = self._items.items[index], self._dying.get(index, ())
        forms = state.forms | way.forms
        for tensor in dying:
            forms.pop(tensor, None)
        fresh = (frozenset() if opens else state.fresh) | frozenset(way.made)
        successor = _State(
            forms=forms,
            fresh=fresh.difference(dying),
            key=self._key(state, way, index, opens),
            clock=clock,
            ahead_s=state.ahead_s + way.ahead_s,
            parent=state,
            record=ItemRecord(
                item=item,
                strategy=way.strategy,
                conversions=tuple(way.conversions),
                begins=tuple((tensor, placement_of(number)) for tensor, number in way.beginnings),
                opens=opens,
            ),
            history=state.history,
        )
        if index == self._foresight.turn:
            successor.history = [each.ahead_s for each in _line(successor)]
        return successor


def _with(forms: Forms, wanted: int) -> Forms:
    return (forms[0], *sorted((*forms[1:], wanted)))


def _hash(tensor: TimedTensor, forms: Forms) -> int:
    return hash((tensor, forms))


def _line(state: _State) -> list[_State]:
    ancestors: list[_State] = []
    at: _State | None = state
    while at is not None:
        ancestors.append(at)
        at = at.parent
    return ancestors[::-1]


def _records(state: _State) -> Iterator[ItemRecord]:
    for each in _line(state):
        if each.record:
            yield each.record
