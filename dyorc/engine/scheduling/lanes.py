"""Calls by batch key, the most urgent first: all guesses of a program, or the waiting calls of one tenant."""

import heapq
from collections.abc import Callable, Iterator, Set
from typing import TypeAlias

from dyorc.authoring.batching import BatchKey
from dyorc.engine.model.program_call import Call, CallState, enqueue_all
from dyorc.engine.model.request_context import QueueOrder

_Item: TypeAlias = tuple[QueueOrder, int, Call]


class Lanes:
    """Calls that wait for a replica.

    A *lane* holds the calls of one batch key, ordered; only calls of one lane share a batch. The lane whose first call is
    the most urgent goes first.

    A withdrawn call stays until it reaches the front, until withdrawn calls are the majority of its lane, or until
    nothing else is left in the lane.

    Cost: logarithmic in the number of calls, per call; only `take_out` visits all of them.

    Args:
        state: The state of waiting calls; a call in another state has left.
        enter: Moves a call into that state.

    Attributes:
        size: How many wait.
    """

    def __init__(self, state: CallState = CallState.QUEUED, enter: Callable[[Call], None] = Call.enqueue) -> None:
        self.size = 0
        self._state = state
        self._enter = enter
        self._lanes: dict[BatchKey, list[_Item]] = {}
        self._fronts: list[tuple[QueueOrder, int, BatchKey]] = []
        self._num_withdrawn: dict[BatchKey, int] = {}

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Call]:
        """Yields all waiting calls, in no particular order."""
        for lane in self._lanes.values():
            yield from (call for _, _, call in lane if call.state is self._state)

    def keys(self) -> Set[BatchKey]:
        """Returns the keys of the lanes in which calls wait."""
        return self._lanes.keys()

    def total_cost(self) -> float:
        """Returns what all waiting calls cost together. Cost: looks at all lanes."""
        return sum([self.num_in(key) * lane[0][2].cost for key, lane in self._lanes.items() if lane])

    def num_in(self, key: BatchKey) -> int:
        """Returns how many calls wait in a lane."""
        lane = self._lanes.get(key)
        return 0 if lane is None else len(lane) - self._num_withdrawn.get(key, 0)

    def add(self, call: Call) -> None:
        """Puts a call in its place."""
        self._enter(call)
        lane = self._lanes.get(call.batch_key)
        if lane is None:
            lane = self._lanes[call.batch_key] = []
        heapq.heappush(lane, (call.order, call.call_id, call))
        if lane[0][2] is call:
            heapq.heappush(self._fronts, (call.order, call.call_id, call.batch_key))
        self.size += 1

    def add_all(self, calls: list[Call]) -> None:
        """Puts certain calls in their places. Cost: the less, the more of them that stand side by side share a lane."""
        enqueue_all(calls)
        key = calls[0].batch_key
        lane = self._lanes.setdefault(key, [])
        for call in calls:
            if call.batch_key is not key:
                key = call.batch_key
                lane = self._lanes.setdefault(key, [])
            heapq.heappush(lane, (call.order, call.call_id, call))
            if lane[0][2] is call:
                heapq.heappush(self._fronts, (call.order, call.call_id, key))
        self.size += len(calls)

    def withdraw(self, call: Call) -> None:
        """Removes a waiting call. The caller sets its new state."""
        self.size -= 1
        if not self.size:
            self.clear()
            return
        key = call.batch_key
        lane = self._lanes[key]
        count = self._num_withdrawn[key] = self._num_withdrawn.get(key, 0) + 1
        if count == len(lane):
            lane.clear()
            self._lane_changed(key)
        elif count > 32 and count > len(lane) // 2:
            lane[:] = [item for item in lane if item[2].state is self._state and item[2] is not call]
            heapq.heapify(lane)
            self._num_withdrawn[key] = 0
            self._lane_changed(key)

    def take_out(self, is_wanted: Callable[[Call], bool]) -> list[Call]:
        """Removes and returns all wanted calls, in no particular order. The caller sets their new state, and may add them again.

        Cost: looks at all calls.
        """
        calls = [call for call in self if is_wanted(call)]
        if calls:
            taken = set(calls)
            left = [call for call in self if call not in taken]
            self.clear()
            for call in left:
                self.add(call)
        return calls

    def count_next(self, limit: int) -> int:
        """Returns how many calls the next batch could have, up to `limit`."""
        key = self.front()
        return 0 if key is None else min(limit, self.num_in(key))

    def peek(self, key: BatchKey | None = None) -> Call | None:
        """Returns the first call of a lane, or of all lanes; None if no call waits there."""
        if key is None and (key := self.front()) is None:
            return None
        lane = self._lanes.get(key)
        while lane:
            if lane[0][2].state is self._state:
                return lane[0][2]
            self._drop_first(key)
        return None

    def pop(self, key: BatchKey) -> None:
        """Removes the call that `peek` returned."""
        heapq.heappop(self._lanes[key])
        self.size -= 1
        if self.size:
            self._lane_changed(key)
        else:
            self.clear()

    def take(self, key: BatchKey, max_size: int, end_ns: int, late: list[Call]) -> list[Call]:
        """Removes and returns up to `max_size` calls of a lane, the most urgent first. Calls whose deadline is before `end_ns`
        go to `late`.
        """
        lane, calls = self._lanes[key], list[Call]()
        num_before = len(late)
        while lane and len(calls) < max_size:
            call = heapq.heappop(lane)[2]
            if call.state is not self._state:
                self._num_withdrawn[key] -= 1
            elif call.order.deadline_ns < end_ns and call.context.can_be_dropped:
                late.append(call)
            else:
                calls.append(call)
        self.size -= len(calls) + len(late) - num_before
        if self.size:
            self._lane_changed(key)
        else:
            self.clear()
        return calls

    def clear(self) -> None:
        """Forgets all calls."""
        self._lanes.clear()
        self._fronts.clear()
        self._num_withdrawn.clear()
        self.size = 0

    def front(self) -> BatchKey | None:
        """Returns the lane of the most urgent call."""
        while self._fronts:
            order, call_id, key = self._fronts[0]
            lane = self._lanes.get(key)
            if not lane or lane[0][:2] != (order, call_id):
                heapq.heappop(self._fronts)  # that call has left its lane's front
            elif lane[0][2].state is self._state:
                return key
            else:
                self._drop_first(key)
        return None

    def _drop_first(self, key: BatchKey) -> None:
        """Removes the first call of a lane, which was withdrawn."""
        heapq.heappop(self._lanes[key])
        self._num_withdrawn[key] -= 1
        self._lane_changed(key)

    def _lane_changed(self, key: BatchKey) -> None:
        lane = self._lanes[key]
        if lane:
            heapq.heappush(self._fronts, (*lane[0][:2], key))
        else:
            del self._lanes[key]
            self._num_withdrawn.pop(key, None)
        if len(self._fronts) > 2 * len(self._lanes) + 64:
            # Outdated entries are removed when they reach the top, but while `pop` drains one lane, nothing looks at the top.
            self._fronts = [(*lane[0][:2], key) for key, lane in self._lanes.items()]
            heapq.heapify(self._fronts)
