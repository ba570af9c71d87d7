"""The queue of one program: which tenants' calls go into the next batch."""

from collections import deque
from collections.abc import Callable, Iterator

from dyorc.engine.model.program_call import Call
from dyorc.engine.scheduling.fair_shares import SharedLanes
from dyorc.engine.scheduling.lanes import Lanes


def _unit_price(size: int, cost: float) -> float:
    """Returns the same price for every slot."""
    return 1.0


class CallQueue:
    """Certain calls that wait for a replica.

    Within one tenant the most urgent call goes first. Tenants that wait at the same time share the slots of batches by weight
    (`dyorc.engine.scheduling.fair_shares`); with a single tenant, nothing is counted. Groups that must be retried on their own go
    before all others.

    Cost: logarithmic in the queue's length, per call; only `take_out`, `oldest` and `advance` look at all calls.

    Args:
        price: Of a slot in a batch of this many calls, each of this cost, in any unit: what it takes from a tenant's share.

    Attributes:
        size: How many calls wait.
    """

    def __init__(self, price: Callable[[int, float], float] = _unit_price) -> None:
        self._price = price
        self._tenant: str | None = None
        """The only tenant whose calls wait; None with several, until all their calls have left."""
        self._lanes: Lanes | SharedLanes = Lanes()
        self._retries: deque[list[Call]] = deque()
        self._retrying: set[Call] = set()
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Call]:
        """Yields all waiting calls, in no particular order."""
        yield from self._retrying
        yield from self._lanes

    def num_calls_by_tenant(self) -> dict[str, int]:
        """Returns how many calls each tenant has waiting, without retries."""
        if isinstance(self._lanes, SharedLanes):
            return self._lanes.num_calls_by_tenant()
        return {self._tenant or "": self._lanes.size} if self._lanes.size else {}

    def total_cost(self) -> float:
        """Returns what all waiting calls cost together, without retries. Cost: looks at all lanes of all tenants."""
        return self._lanes.total_cost()

    def add(self, call: Call) -> None:
        """Puts a call in its place."""
        tenant = call.context.tenant
        if tenant != self._tenant:
            self._admit_tenant(tenant)
        self._lanes.add(call)
        self.size += 1

    def add_all(self, calls: list[Call]) -> None:
        """Puts calls in their places."""
        tenant = calls[0].context.tenant
        for call in calls:
            if call.context.tenant != tenant:
                for each in calls:
                    self.add(each)
                return
        if tenant != self._tenant:
            self._admit_tenant(tenant)
        self._lanes.add_all(calls)
        self.size += len(calls)

    def _admit_tenant(self, tenant: str) -> None:
        """Makes room for a second tenant if a call of another one waits."""
        if isinstance(self._lanes, SharedLanes):
            if not self._lanes.size:
                self._lanes, self._tenant = Lanes(), tenant
        elif self._tenant is None or not self._lanes.size:
            self._tenant = tenant
        else:
            self._lanes, self._tenant = SharedLanes(self._tenant, self._lanes, self._price), None

    def add_retry(self, calls: list[Call]) -> None:
        """Puts a group of calls in front of all others, with which it must not share a batch."""
        for call in calls:
            call.enqueue()
        self._retries.append(calls)
        self._retrying.update(calls)
        self._count()

    @property
    def has_suspect(self) -> bool:
        """Whether one of the calls to be retried may have crashed a replica."""
        return any(call.is_suspect for call in self._retrying)

    def withdraw(self, call: Call) -> None:
        """Removes a queued call. The caller sets its new state."""
        if call in self._retrying:
            self._retrying.remove(call)
            if not self._retrying:
                self._retries.clear()
        else:
            self._lanes.withdraw(call)
        self._count()

    def take_out(self, is_wanted: Callable[[Call], bool]) -> list[Call]:
        """Removes and returns all wanted calls, the most urgent first. The caller sets their new state, and may add them again.

        Cost: looks at all calls.
        """
        calls = self._lanes.take_out(is_wanted)
        for group in self._retries:
            wanted = [call for call in group if call in self._retrying and is_wanted(call)]
            group[:] = [call for call in group if call not in wanted]
            self._retrying.difference_update(wanted)
            calls += wanted
        self._count()
        return sorted(calls, key=lambda call: (call.order, call.call_id))

    def count_next(self, limit: int) -> int:
        """Returns how many calls the next batch could have, up to `limit`."""
        if self._retrying:
            return limit
        key = self._lanes.front()
        return 0 if key is None else min(limit, self._lanes.num_in(key))

    def peek(self) -> Call | None:
        """Returns the next call, not counting groups to be retried; None without one."""
        return self._lanes.peek()

    def first(self) -> Call | None:
        """Returns the next call, or one of the group to be retried that goes before it; None if none waits."""
        return next((call for group in self._retries for call in group if call in self._retrying), None) or self.peek()

    def oldest(self) -> Call | None:
        """Returns the most urgent call of all tenants; None if none waits. Cost: looks at all calls."""
        return min(self, key=lambda call: (call.order, call.call_id), default=None)

    def advance(self, call: Call) -> None:
        """Puts a waiting call in front of all others, alone. Its tenant pays for it as for any. Cost: looks at all calls."""
        self.take_out(lambda other: other is call)
        self._retries.appendleft([call])
        self._retrying.add(call)
        self._count()

    def take(self, max_size: int, end_ns: int = 0) -> tuple[list[Call], bool, list[Call]]:
        """Takes the next batch; empty if no call waits, or only calls that are too late.

        Args:
            end_ns: When the batch will end at the earliest; calls whose deadline is before that are left out.

        Returns:
            The batch, whether it is a retry group, and the calls left out because they are too late. All have left the queue.
        """
        while self._retries:
            group = [call for call in self._retries.popleft() if call in self._retrying]
            if group:
                self._retrying.difference_update(group)
                if isinstance(self._lanes, SharedLanes):
                    self._lanes.charge(group)
                self._count()
                return group, True, []
        key = self._lanes.front()
        late: list[Call] = []
        calls = [] if key is None else self._lanes.take(key, max_size, end_ns, late)
        self.size = self._lanes.size + len(self._retrying)
        return calls, False, late

    def take_all(self) -> list[Call]:
        """Empties the queue."""
        calls = list(self)
        self._lanes, self._tenant = Lanes(), None
        self._retries.clear()
        self._retrying.clear()
        self.size = 0
        return calls

    def _count(self) -> None:
        self.size = self._lanes.size + len(self._retrying)
