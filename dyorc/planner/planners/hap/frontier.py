"""Two searches over the same moves: frontier search, and A* for small graphs and as a check of it.

Frontier search goes through the moves in order and keeps, at each place, the states that may be part of the best solution.
Costs add up, so of all ways to reach a state the cheapest is enough. One state makes another useless if changing the forms of
the first into those of the second costs no more than the difference: this contains the rule of HAP (EuroSys'24, section 4.4), by
which a superset of properties at no more cost wins, and is as safe. What is left is optimal, unless there were more states than
`max_states` somewhere.

States and their costs relative to the cheapest are kept once, and so is what a move makes of them. Layers repeat moves; after a
few, the states repeat as well, and a further layer costs only a look-up.

A* estimates the remaining cost as each remaining move's cheapest alternative, as if changing forms cost nothing: HAP's remaining
compute at infinite bandwidth (section 4.3). The estimate is never too high, so the first complete state is optimal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, compress, count
from operator import ne
from typing import TypeAlias

from dyorc.planner.planners.hap.form_costs import FormCosts
from dyorc.planner.planners.hap.search_moves import SearchMove, State

_MAX_COMPARED = 24
"""With how many cheaper states each is compared."""

_Ways: TypeAlias = tuple[tuple[int, int], ...]
"""For each state, the number of the state before and of the alternative that lead to it."""

_Key: TypeAlias = tuple["_Front", SearchMove, tuple[int, ...] | None, State | None]
"""What the outcome of a move depends on: the states before, which alternatives are tried, and which state is always kept."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Alternatives, and what they cost.

    Attributes:
        numbers: For each choice, the number of its alternative.
        cost: In units of time.
        is_optimal: Whether no other can cost less.
        num_states: The most states that were kept at one place.
        path: The states that it goes through.
    """

    numbers: tuple[int, ...]
    cost: int
    is_optimal: bool
    num_states: int
    path: tuple[State, ...] = ()


@dataclass(frozen=True, eq=False)
class _Front:
    """States at one place, the cheapest first, with their costs beyond the first one's."""

    states: tuple[State, ...]
    costs: tuple[int, ...]


class Frontier:
    """Searches problems, and remembers what moves make of states as long as it lives."""

    def __init__(self, max_states: int = 512) -> None:
        """Args:
        max_states: How many states are kept at one place.
        """
        self._max_states = max_states
        self._fronts: dict[tuple[tuple[State, ...], tuple[int, ...]], _Front] = {}
        self._known: dict[_Key, tuple[_Front, int, _Ways, bool]] = {}

    def solve(
        self,
        moves: Sequence[SearchMove],
        check: Callable[[], None] = lambda: None,
        *,
        among: Sequence[tuple[int, ...]] | None = None,
        known: Solution | None = None,
    ) -> Solution:
        """Returns the cheapest alternatives.

        Args:
            moves: In the order of the search.
            check: Called at each move; may raise to end the search.
            among: For each move, the alternatives that are tried; all if None.
            known: A solution whose states are always kept: what is found costs no more.
        """
        front, total, is_optimal, most = self._front([((), (0, 0, 0))])[0], 0, True, 1
        ways: list[_Ways] = []
        fronts: list[_Front] = []
        for index, move in enumerate(moves):
            check()
            key = (front, move, among[index] if among else None, known.path[index] if known else None)
            outcome = self._known.get(key)
            if outcome is None:
                outcome = self._known[key] = self._advance(*key)
            front, least, way, is_whole = outcome
            fronts.append(front)
            total += least
            ways.append(way)
            is_optimal = is_optimal and is_whole
            most = max(most, len(front.states))
        numbers: list[int] = []
        path: list[State] = []
        place = 0
        for way, after in zip(reversed(ways), reversed(fronts), strict=True):
            path.append(after.states[place])
            place, number = way[place]
            numbers.append(number)
        return Solution(tuple(reversed(numbers)), total, is_optimal and among is None, most, tuple(reversed(path)))

    def _advance(
        self, front: _Front, move: SearchMove, among: tuple[int, ...] | None, always: State | None
    ) -> tuple[_Front, int, _Ways, bool]:
        best: dict[State, tuple[int, int, int]] = {}
        for index, (state, cost) in enumerate(zip(front.states, front.costs, strict=True)):
            for after, step, number in move.results(state, among):
                known = best.get(after)
                if known is None or cost + step < known[0]:
                    best[after] = (cost + step, index, number)
        kept = self._prune(best, move.after)
        is_whole = len(kept) <= self._max_states
        kept = kept[: self._max_states]
        if always in best and always not in {state for state, _ in kept}:
            kept.append((always, best[always]))
        front, least = self._front(kept)
        return front, least, tuple((index, number) for _, (_, index, number) in kept), is_whole

    def _prune(
        self, best: dict[State, tuple[int, int, int]], after: Sequence[tuple[FormCosts, bool]]
    ) -> list[tuple[State, tuple[int, int, int]]]:
        kept: list[tuple[State, tuple[int, int, int]]] = []
        for state, best_way in sorted(best.items(), key=lambda item: (item[1][0], item[0])):
            if not _is_reached(kept[:_MAX_COMPARED], state, best_way[0], after):
                kept.append((state, best_way))
                if len(kept) > self._max_states:  # enough to know that there are more
                    break
        return kept

    def _front(self, ways: Sequence[tuple[State, tuple[int, int, int]]]) -> tuple[_Front, int]:
        least = ways[0][1][0]
        states = tuple(state for state, _ in ways)
        costs = tuple(cost - least for _, (cost, _, _) in ways)
        return self._fronts.setdefault((states, costs), _Front(states, costs)), least


def _is_reached(
    others: Sequence[tuple[State, tuple[int, int, int]]], state: State, cost: int, after: Sequence[tuple[FormCosts, bool]]
) -> bool:
    """Whether one of some states can replace another at no more than its cost."""
    for other, (least, _, _) in others:
        budget = cost - least
        for place in compress(count(), map(ne, other, state)):
            mine, theirs, (forms, is_held) = other[place], state[place], after[place]
            budget -= forms.between(mine, theirs) if is_held else forms.between(theirs, mine)
            if budget < 0:
                break
        else:
            return True
    return False


def solve_by_a_star(moves: Sequence[SearchMove], check: Callable[[], None] = lambda: None) -> Solution:
    """Returns the cheapest alternatives.

    Args:
        moves: In the order of the search.
        check: Called at each state; may raise to end the search.
    """
    to_come = [0, *accumulate(move.least for move in reversed(moves))][::-1]
    best: dict[tuple[int, State], int] = {(0, ()): 0}
    came_from: dict[tuple[int, State], tuple[State, int]] = {}
    queue: list[tuple[int, int, State]] = [(to_come[0], 0, ())]  # places as negative numbers: the furthest first among equals
    done: set[tuple[int, State]] = set()
    while queue:
        check()
        _, place, state = heappop(queue)
        place = -place
        if (place, state) in done:
            continue
        done.add((place, state))
        if place == len(moves):
            return Solution(_numbers(came_from, place, state), best[place, state], True, len(best))
        for after, step, number in moves[place].results(state):
            key, cost = (place + 1, after), best[place, state] + step
            if key not in best or cost < best[key]:
                best[key] = cost
                came_from[key] = (state, number)
                heappush(queue, (cost + to_come[place + 1], -(place + 1), after))
    raise AssertionError("every node can run whole on each rank")


def _numbers(came_from: dict[tuple[int, State], tuple[State, int]], place: int, state: State) -> tuple[int, ...]:
    numbers: list[int] = []
    while place:
        state, number = came_from[place, state]
        numbers.append(number)
        place -= 1
    return tuple(reversed(numbers))
