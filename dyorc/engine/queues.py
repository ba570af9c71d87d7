"""The queue of one program: calls by batch key, the most urgent first."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from dyorc.authoring.batching import BatchKey
from dyorc.engine.cells import Call, CallState, Order

_Item: TypeAlias = tuple[Order, int, Call]


class CallQueue:
    """Calls that wait for a replica.

    A *lane* holds the calls of one batch key, ordered; only calls of one lane share a batch. The lane whose first call is
    the most urgent goes first. Groups that must be tried again on their own go before all lanes.

    A withdrawn call stays where it is until it comes to the front, or until the withdrawn are the majority of its lane.

    Cost: logarithmic in the queue's length, per call; no operation looks at all calls.

    Args:
        state: Of the calls that wait here; a call in another state has left.
    """

    def __init__(self, state: CallState = CallState.QUEUED) -> None:
        self._state = state
        self._lanes: dict[BatchKey, list[_Item]] = {}
        self._fronts: list[tuple[Order, int, BatchKey]] = []
        self._num_withdrawn: dict[BatchKey, int] = {}
        self._retries: deque[list[Call]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Call]:
        """All calls that wait, in no particular order. For tests and for giving up."""
        for group in self._retries:
            yield from (call for call in group if call.state is self._state)
        for lane in self._lanes.values():
            yield from (call for _, _, call in lane if call.state is self._state)

    def add(self, call: Call) -> None:
        """Puts a call in its place."""
        call.state = self._state
        lane = self._lanes.get(call.batch_key)
        if lane is None:
            lane = self._lanes[call.batch_key] = []
        item = (call.order, call.call_id, call)
        heapq.heappush(lane, item)
        if lane[0] is item:
            heapq.heappush(self._fronts, (call.order, call.call_id, call.batch_key))
        self._size += 1

    def add_retry(self, calls: list[Call]) -> None:
        """Puts a group in front that must share no batch with others."""
        for call in calls:
            call.state = self._state
        self._retries.append(calls)
        self._size += len(calls)

    def withdraw(self, call: Call) -> None:
        """Takes a queued call out. The caller gives it another state."""
        self._size -= 1
        if not self._size:
            self._clear()
            return
        key = call.batch_key
        lane = self._lanes.get(key)
        if lane is None:
            return
        count = self._num_withdrawn[key] = self._num_withdrawn.get(key, 0) + 1
        if count > 32 and count > len(lane) // 2:
            call.state = CallState.WITHDRAWN
            lane[:] = [item for item in lane if item[2].state is self._state]
            heapq.heapify(lane)
            self._num_withdrawn[key] = 0
            self._lane_changed(key)

    def take_out(self, is_wanted: Callable[[Call], bool]) -> list[Call]:
        """Takes some calls out for good, the most urgent first: they may be added again. The caller gives them another state.

        Cost: looks at all calls.
        """
        calls = sorted((call for call in self if is_wanted(call)), key=lambda call: (call.order, call.call_id))
        if calls:
            taken = set(calls)
            retries = [[call for call in group if call.state is self._state and call not in taken] for group in self._retries]
            left = [item[2] for lane in self._lanes.values() for item in lane]
            self._clear()
            for call in left:
                if call.state is self._state and call not in taken:
                    self.add(call)
            for group in filter(None, retries):
                self.add_retry(group)
        return calls

    def count_next(self, limit: int) -> int:
        """How many calls the next batch could have, up to `limit` (withdrawn ones may be counted in)."""
        if self._retries:
            return limit
        key = self._front()
        return 0 if key is None else min(limit, len(self._lanes[key]))

    def peek(self, key: BatchKey | None = None) -> Call | None:
        """The first call of a lane, or of all, leaving groups to be tried again aside; None if there is none."""
        if key is None and (key := self._front()) is None:
            return None
        lane = self._lanes.get(key)
        while lane:
            if lane[0][2].state is self._state:
                return lane[0][2]
            heapq.heappop(lane)
            self._num_withdrawn[key] = self._num_withdrawn.get(key, 0) - 1
            self._lane_changed(key)
        return None

    def pop(self, key: BatchKey) -> None:
        """Takes the call out that `peek` gave."""
        heapq.heappop(self._lanes[key])
        self._size -= 1
        self._lane_changed(key)
        self._clear_if_empty()

    def take(self, max_size: int) -> tuple[list[Call], bool]:
        """The next batch, and whether it is a retry group. Empty if nothing waits."""
        while self._retries:
            group = [call for call in self._retries.popleft() if call.state is self._state]
            if group:
                self._size -= len(group)
                self._clear_if_empty()
                return group, True
        key = self._front()
        if key is None:
            return [], False
        lane, calls = self._lanes[key], list[Call]()
        while lane and len(calls) < max_size:
            call = heapq.heappop(lane)[2]
            if call.state is self._state:
                calls.append(call)
            else:
                self._num_withdrawn[key] = self._num_withdrawn.get(key, 0) - 1
        self._size -= len(calls)
        self._lane_changed(key)
        self._clear_if_empty()
        return calls, False

    def take_all(self) -> list[Call]:
        """Empties the queue."""
        calls = list(self)
        self._clear()
        return calls

    def _clear_if_empty(self) -> None:
        """Calls that were withdrawn would stay until somebody comes to the front, and nobody does."""
        if not self._size and self._fronts:
            self._clear()

    def _clear(self) -> None:
        self._lanes.clear()
        self._fronts.clear()
        self._num_withdrawn.clear()
        self._retries.clear()
        self._size = 0

    def _front(self) -> BatchKey | None:
        """The lane of the most urgent call that still waits."""
        while self._fronts:
            order, call_id, key = self._fronts[0]
            lane = self._lanes.get(key)
            if not lane or lane[0][:2] != (order, call_id):
                heapq.heappop(self._fronts)  # that call has left its lane's front
                continue
            if lane[0][2].state is self._state:
                return key
            heapq.heappop(lane)
            self._num_withdrawn[key] = self._num_withdrawn.get(key, 0) - 1
            self._lane_changed(key)
        return None

    def _lane_changed(self, key: BatchKey) -> None:
        lane = self._lanes[key]
        if lane:
            heapq.heappush(self._fronts, (*lane[0][:2], key))
        else:
            del self._lanes[key]
            self._num_withdrawn.pop(key, None)
        if len(self._fronts) > 2 * len(self._lanes) + 64:
            # Outdated entries leave when they come to the top, which nobody looks at while one lane is drained by `pop`.
            self._fronts = [(*lane[0][:2], key) for key, lane in self._lanes.items()]
            heapq.heapify(self._fronts)
