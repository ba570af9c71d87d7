"""A* over the same moves as frontier search: for small graphs, and as a check of it.

The estimate of what is still to come is each remaining move's cheapest alternative, as if changing forms cost nothing: HAP's
remaining compute at infinite bandwidth (EuroSys'24, section 4.3). It never is too high, so the first complete state is optimal.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import accumulate

from dyorc.planner.planners.hap.frontier import Solution
from dyorc.planner.planners.hap.search_moves import SearchMove, State


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
