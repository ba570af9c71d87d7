"""Whose turn it is: tenants share the slots of batches in proportion to their weights.

Each tenant has a *tag*: the virtual time at which its next call is due. The smallest tag is next, and every slot taken moves
its tag on by the slot's price divided by the tenant's weight. The virtual time of a queue is the smallest tag of those waiting.
A tenant that begins to wait starts there, or at its own tag if that is later: so no tenant saves up turns while idle, or escapes
what it has used by leaving for a moment. Once no call waits, all start anew.

A batch belongs to one lane. The tenant whose turn it is chooses the lane by its most urgent call; the other slots go to all
tenants with calls in that lane, by their tags. A tenant alone in its lane pays for a small batch, which costs more device time
per call: a slot's price is the call's share of the batch's time, T(n)/n; so is a call that costs more, if its program says so.

Source: start-time fair queueing (Goyal, Vin, Cheng: "Start-time fair queueing: a scheduling algorithm for integrated services
packet switching networks", SIGCOMM 1996), with a flow's tag kept for its head instead of one for each packet, since a flow's
order may change while it waits.
"""

import heapq
from collections.abc import Callable, Iterator

from dyorc.authoring.batching import BatchKey
from dyorc.engine.model.program_call import Call
from dyorc.engine.scheduling.lanes import Lanes

_LEAST_WEIGHT = 1e-3


class Share:
    """One tenant's part in a queue.

    Attributes:
        tag: When its next call is due, in virtual time; it never falls.
        number: If two are due at once, the larger number goes first: the later arrival has had less.
        is_debtor: Whether it has left, with a tag that may be ahead of the virtual time.
    """

    __slots__ = ("is_debtor", "lanes", "number", "tag", "tenant")

    def __init__(self, tenant: str, lanes: Lanes, number: int) -> None:
        self.tenant = tenant
        self.lanes = lanes
        self.number = number
        self.tag = 0.0
        self.is_debtor = False

    def charge(self, price: float, weight: float) -> None:
        """Pays for a slot."""
        self.tag += price / max(weight, _LEAST_WEIGHT)


class TenantTurns:
    """The shares that have waiting calls, by their tags; in all lanes, or in one of them.

    Tags only grow, so an entry with an outdated tag is too far in front, and is corrected when it reaches the front.

    Cost: logarithmic in the number of shares per change of a tag.
    """

    def __init__(self, key: BatchKey | None = None) -> None:
        self._key = key
        self._heap: list[tuple[float, int, Share]] = []
        self._listed: set[Share] = set()
        self._room = 64

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, share: Share) -> None:
        """Adds a share that has calls now."""
        if share in self._listed:
            return
        if len(self._heap) >= self._room:
            self._heap = [entry for entry in self._heap if self._has_calls(entry[2])]
            heapq.heapify(self._heap)
            self._listed = {entry[2] for entry in self._heap}
            self._room = 2 * len(self._heap) + 64
        self._listed.add(share)
        heapq.heappush(self._heap, (share.tag, -share.number, share))

    def first(self) -> Share | None:
        """Returns whose turn it is."""
        heap = self._heap
        while heap:
            tag, number, share = heap[0]
            if not self._has_calls(share):
                heapq.heappop(heap)
                self._listed.remove(share)
            elif tag != share.tag:
                heapq.heapreplace(heap, (share.tag, number, share))
            else:
                return share
        return None

    def _has_calls(self, share: Share) -> bool:
        return share.lanes.size > 0 if self._key is None else share.lanes.num_in(self._key) > 0


class SharedLanes:
    """The waiting calls of several tenants, each with its own lanes.

    Args:
        tenant: The tenant that was alone before, with its lanes; both are taken over.
        price: The price of a slot in a batch of this many calls, each of this cost, in any unit.

    Attributes:
        size: How many calls wait.
    """

    def __init__(self, tenant: str, lanes: Lanes, price: Callable[[int, float], float]) -> None:
        self.size = lanes.size
        self._price = price
        self._shares: dict[str, Share] = {}
        self._debtors: list[tuple[float, int, Share]] = []
        self._turns = TenantTurns()
        self._turns_in: dict[BatchKey, TenantTurns] = {}
        self._num_in: dict[BatchKey, int] = {}
        self._num_shares = 0
        share = self._new_share(tenant, lanes)
        self._turns.add(share)
        for key in lanes.keys():  # noqa: SIM118 (it is no dict)
            self._num_in[key] = lanes.num_in(key)
            turns = self._turns_in[key] = TenantTurns(key)
            turns.add(share)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Call]:
        """Yields all waiting calls, tenant by tenant."""
        for share in self._shares.values():
            yield from share.lanes

    def total_cost(self) -> float:
        """Returns what all waiting calls cost together. Cost: looks at all lanes of all tenants."""
        return sum([share.lanes.total_cost() for share in self._shares.values()])

    def num_calls_by_tenant(self) -> dict[str, int]:
        """Returns how many calls each tenant has waiting."""
        return {tenant: share.lanes.size for tenant, share in self._shares.items() if share.lanes.size}

    def add(self, call: Call) -> None:
        """Puts a call in its place."""
        tenant, key = call.context.tenant, call.batch_key
        share = self._shares.get(tenant) or self._new_share(tenant, Lanes())
        if not share.lanes.size and (first := self._turns.first()) is not None:
            share.tag = max(share.tag, first.tag)
        share.lanes.add(call)
        self.size += 1
        self._num_in[key] = self._num_in.get(key, 0) + 1
        turns = self._turns_in.get(key)
        if turns is None:
            turns = self._turns_in[key] = TenantTurns(key)
        turns.add(share)
        self._turns.add(share)

    def add_all(self, calls: list[Call]) -> None:
        """Puts calls in their places."""
        for call in calls:
            self.add(call)

    def withdraw(self, call: Call) -> None:
        """Removes a waiting call. The caller sets its new state."""
        share = self._shares[call.context.tenant]
        share.lanes.withdraw(call)
        self._remove(share, call.batch_key, 1)

    def take_out(self, is_wanted: Callable[[Call], bool]) -> list[Call]:
        """Removes and returns all wanted calls, as `Lanes.take_out` does."""
        calls: list[Call] = []
        for share in list(self._shares.values()):
            taken = share.lanes.take_out(is_wanted)
            calls += taken
            for call in taken:
                self._remove(share, call.batch_key, 1)
        return calls

    def peek(self) -> Call | None:
        """Returns the most urgent call of the tenant whose turn it is."""
        share = self._turns.first()
        return None if share is None else share.lanes.peek()

    def front(self) -> BatchKey | None:
        """Returns the lane of that call."""
        share = self._turns.first()
        return None if share is None else share.lanes.front()

    def num_in(self, key: BatchKey) -> int:
        """Returns how many calls wait in a lane."""
        return self._num_in.get(key, 0)

    def take(self, key: BatchKey, max_size: int, end_ns: int, late: list[Call]) -> list[Call]:
        """Removes and returns up to `max_size` calls of a lane, shared between its tenants.

        Those whose deadline is before `end_ns` go to `late`, and cost nothing.
        """
        turns, calls = self._turns_in[key], list[Call]()
        size, price = min(max_size, self._num_in[key]), 0.0
        while len(calls) < max_size and (share := turns.first()) is not None:
            num_late = len(late)
            taken = share.lanes.take(key, 1, end_ns, late)
            for call in taken:
                price = price or self._price(size, call.cost)  # all calls of a lane cost the same
                share.charge(price, call.context.weight)
            calls += taken
            self._remove(share, key, len(taken) + len(late) - num_late)
        return calls

    def charge(self, calls: list[Call]) -> None:
        """Charges for calls that do not wait here but run in a separate batch."""
        price = self._price(len(calls), calls[0].cost)
        for call in calls:
            share = self._shares.get(call.context.tenant)
            if share is not None:
                share.charge(price, call.context.weight)

    def _new_share(self, tenant: str, lanes: Lanes) -> Share:
        self._num_shares += 1
        share = self._shares[tenant] = Share(tenant, lanes, self._num_shares)
        return share

    def _remove(self, share: Share, key: BatchKey, number: int) -> None:
        """Counts calls of a share that have left a lane."""
        self.size -= number
        self._num_in[key] -= number
        if not self._num_in[key]:
            del self._num_in[key], self._turns_in[key]
        if not share.lanes.size and not share.is_debtor:
            share.is_debtor = True
            heapq.heappush(self._debtors, (share.tag, share.number, share))
        if self._debtors:
            self._forget_debtors()

    def _forget_debtors(self) -> None:
        """Forgets tenants that have left and whose tags the virtual time has reached: they would start there anyway."""
        first = self._turns.first()
        while self._debtors and (first is None or self._debtors[0][0] <= first.tag):
            tag, _, share = heapq.heappop(self._debtors)
            if share.lanes.size:
                share.is_debtor = False
            elif share.tag > tag and first is not None:
                heapq.heappush(self._debtors, (share.tag, share.number, share))
            else:
                del self._shares[share.tenant]
