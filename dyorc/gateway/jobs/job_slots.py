"""Shares a server's slots for jobs: tenants get them by weight, and no tenant and no model may hold all of them.

A free slot goes to the tenant whose jobs have held slots for the least time, divided by its weight; within a tenant, urgent jobs
go first, then the model that holds the fewest. Since a slot cannot be taken back, some are kept free for the next tenant: one
that holds any may hold at most a multiple of what is then free, as in `gateway.admission`.

Source: start-time fair queueing, as in `dyorc.engine.scheduling.fair_shares`, with the price of a slot corrected once known.
Plain objects without I/O. Cost: slots times lanes per pick.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from dyorc.store.base import Lane

_LANE_GREED = 4.0
_MODEL_GREED = 8.0
_TENANT_GREED = 8.0
"""The heaviest tenant may hold this many times what is free."""
_FIRST_LENGTH_S = 1.0
"""Assumed run time of a model's jobs, until one has run."""
_SMOOTHING = 0.2
_LEAST_WEIGHT = 1e-3


class JobSlots:
    """The slots of one server.

    Args:
        max_running: The number of slots.
    """

    def __init__(self, max_running: int) -> None:
        self._max_running = max_running
        self._held: Counter[tuple[str, ...]] = Counter()
        self._num_held = 0
        self._tags: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        self._lengths_s: dict[str, float] = {}

    def pick(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Returns the lanes to claim the next jobs from, in order; a lane may appear several times."""
        self._welcome({lane.tenant for lane in lanes})
        held, num_held, tags = Counter(self._held), self._num_held, dict(self._tags)
        picked: list[Lane] = []
        while num_held < self._max_running:
            num_free = self._max_running - num_held - 1
            allowed = [lane for lane in lanes if self._has_room(held, lane, num_free)]
            if not allowed:
                break
            lane = min(allowed, key=lambda lane: (tags[lane.tenant], not lane.is_urgent, held[lane.tenant, lane.model_name]))
            picked.append(lane)
            held.update(_holders(lane.tenant, lane.model_name))
            num_held += 1
            tags[lane.tenant] += self._price(lane.tenant, self._length_s(lane.model_name))
        return picked

    def take(self, tenant: str, model_name: str, weight: float) -> "JobSlot":
        """Books a job that starts to run."""
        self._weights[tenant] = max(weight, _LEAST_WEIGHT)
        self._held.update(_holders(tenant, model_name))
        self._num_held += 1
        price = self._price(tenant, self._length_s(model_name))
        self._tags[tenant] = self._tags.get(tenant, 0.0) + price
        return JobSlot(self, tenant, model_name, price)

    def give_back(self, slot: "JobSlot", length_s: float) -> None:
        """Books a job's run time."""
        self._held.subtract(_holders(slot.tenant, slot.model_name))
        self._held += Counter()  # drops zeros
        self._num_held -= 1
        self._tags[slot.tenant] += self._price(slot.tenant, length_s) - slot.price
        known_s = self._length_s(slot.model_name)
        self._lengths_s[slot.model_name] = known_s + _SMOOTHING * (length_s - known_s)

    def _welcome(self, waiting: set[str]) -> None:
        """Puts a tenant that begins to wait level with the others: no credit for idle time, and earlier use still counts."""
        active = {tenant for tenant in self._tags if self._held["tenant", tenant, ""]} | (waiting & self._tags.keys())
        now = min((self._tags[tenant] for tenant in active), default=0.0)
        self._tags = {tenant: tag for tenant, tag in self._tags.items() if tenant in active or tag > now}
        self._weights = {tenant: weight for tenant, weight in self._weights.items() if tenant in self._tags}
        for tenant in waiting:
            self._tags[tenant] = max(now, self._tags.get(tenant, now))

    def _has_room(self, held: Counter[tuple[str, ...]], lane: Lane, num_free: int) -> bool:
        """Returns whether a lane may have one more slot when this many are free. A lane that holds none may."""
        greeds = (_LANE_GREED, _MODEL_GREED, self._tenant_greed(lane.tenant))
        return all(
            not held[holder] or held[holder] + 1 <= greed * num_free
            for holder, greed in zip(_holders(lane.tenant, lane.model_name), greeds, strict=True)
        )

    def _tenant_greed(self, tenant: str) -> float:
        if not tenant:  # without keys, all clients are this tenant
            return float("inf")
        heaviest = max((self._weight(each) for each in self._tags), default=1.0)
        return _TENANT_GREED * self._weight(tenant) / heaviest

    def _weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)

    def _price(self, tenant: str, length_s: float) -> float:
        return length_s / self._weight(tenant)

    def _length_s(self, model_name: str) -> float:
        return self._lengths_s.get(model_name, _FIRST_LENGTH_S)


class JobSlot:
    """One job's slot, with what its tenant was charged for it so far."""

    __slots__ = ("_slots", "model_name", "price", "tenant")

    def __init__(self, slots: JobSlots, tenant: str, model_name: str, price: float) -> None:
        self._slots = slots
        self.tenant = tenant
        self.model_name = model_name
        self.price = price

    def give_back(self, length_s: float) -> None:
        """Corrects the charge to the job's run time."""
        self._slots.give_back(self, length_s)


def _holders(tenant: str, model_name: str) -> Iterator[tuple[str, ...]]:
    yield (tenant, model_name)
    yield ("model", model_name, "")
    yield ("tenant", tenant, "")
