"""How much may be in flight: per tenant and in all.

Three things are counted: requests, bytes of their bodies, and requests per second. A tenant has its own limits (`Tenant`), the
server has limits for all together, and a rule of shares keeps one tenant from using up everything. The rule looks only at what
is in flight now, so it needs neither a notion of "active" tenants nor a memory of them:

    a tenant that holds something already may hold at most  8 x (its weight / the largest weight in flight) x what is free

Source: dynamic queue thresholds, Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998, with weights. One tenant
alone reaches 8/9 of the limits; the ninth is left for the next tenant, and there is always room for one request. Two tenants that
flood the server reach 8/17 each, or with weights 1 and 9, 9 % and 81 %. A tenant with nothing in flight is admitted as long as
there is any room. Without keys, all clients are one tenant, which may use everything.

A tenant's own limits hold for all processes of the server together: each publishes what its tenants have in flight. The
server's limits, and so the shares, are those of this process.

Plain objects without I/O, for one thread (the event loop's). Cost: 2 us per admitted request, less for a refused one.
"""

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from dyorc.core.request import Terms
from dyorc.errors import CapacityError, TenantLimitError
from dyorc.gateway.peer_processes import CountsElsewhere, TenantCounts
from dyorc.gateway.request_senders import RequestSender
from dyorc.gateway.tenants import Tenant
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.metric import BoundedLabels
from dyorc.telemetry.metrics.readings import Readings

_GREED = 8.0
"""The heaviest tenant may hold this many times what is free."""

_SMOOTHING = 0.1
_MIN_RETRY_S = 0.05
_MAX_RETRY_S = 60.0
_ROUNDING_S = 1e-9
_FIRST_STAY_S = 0.1
"""Assumed time that a request stays, until one has ended."""

_MIN_SWEEP = 64
_MAX_SHOWN = 100
_ANONYMOUS = "anonymous"
"""The label of clients without a key."""


@dataclass(slots=True)
class _Counts:
    """How many requests of one tenant, or of several that metrics do not tell apart, were admitted and refused."""

    num_admitted: int = 0
    refusals: dict[str, int] = field(default_factory=dict[str, int])
    """By reason."""


@dataclass(slots=True)
class _Account:
    """What a tenant has in flight, and its token bucket.

    Attributes:
        counts: Where its requests are counted.
        weight: As of its first request in flight.
        full_s: When its bucket is full again. From that, the number of tokens follows at any time, without a count.
        elsewhere: What it has in other processes; None if there are none, or the tenant has no limits.
    """

    weight: float
    full_s: float
    counts: _Counts
    num_requests: int = 0
    num_bytes: int = 0
    elsewhere: CountsElsewhere | None = None

    def num_requests_in_all(self) -> int:
        return self.num_requests if self.elsewhere is None else self.num_requests + self.elsewhere.num_requests()

    def num_bytes_in_all(self) -> int:
        return self.num_bytes if self.elsewhere is None else self.num_bytes + self.elsewhere.num_bytes()

    def publish(self, elsewhere: CountsElsewhere) -> None:
        """Publishes what it has here to the other processes."""
        elsewhere.publish(self.num_requests, self.num_bytes, self.full_s)


@dataclass(slots=True)
class AdmissionEpoch:
    """A time in which requests were admitted.

    Attributes:
        num_requests: How many of them are still in flight.
    """

    num_requests: int = 0


class Ticket:
    """Room for one request, from `Admission.admit` to the end of the block that it is entered for.

    Attributes:
        arrived_ns: When the request's first byte came, on the monotonic clock, so that its time counts from then; set by the
            shell that knows it. None: time counts from when the request was read.
        sender: Knows its ids and headers; set by the shell. None: code learns nothing of them.
    """

    __slots__ = ("_account", "_admission", "_epoch", "_num_bytes", "_since_s", "_tenant", "arrived_ns", "sender")

    def __init__(self, admission: "Admission", tenant: Tenant, account: _Account, num_bytes: int, since_s: float) -> None:
        self._epoch = admission.epoch
        self._admission = admission
        self._tenant = tenant
        self._account = account
        self._num_bytes = num_bytes
        self._since_s = since_s
        self.arrived_ns: int | None = None
        self.sender: RequestSender | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Gives the room back, where there is no block to enter the ticket for."""
        self._epoch.num_requests -= 1
        self._admission.release(self._tenant, self._account, self._num_bytes, self._since_s)

    def terms(self, *, timeout_s: float | None, priority: int) -> Terms:
        """Returns the terms on which the request is served.

        Raises:
            PermissionDeniedError: If the priority is higher than its tenant's key may ask for.
        """
        self._tenant.check_priority(priority)
        start_ns = time.monotonic_ns() if self.arrived_ns is None else self.arrived_ns
        deadline_ns = None if timeout_s is None else start_ns + int(timeout_s * 1e9)
        return Terms(deadline_ns=deadline_ns, priority=priority, tenant=self._tenant.name, weight=self._tenant.weight)

    def grow(self, num_bytes: int) -> None:
        """Adds `num_bytes`: the request is larger than known so far. If there is no room for more, it keeps what it had.

        Raises:
            TenantLimitError: If its tenant has too many bytes in flight.
            CapacityError: If there is no room for that many.
        """
        self._admission.take_bytes(self._tenant, self._account, num_bytes)
        self._num_bytes += num_bytes


class Admission:
    """Counts what is in flight.

    Args:
        max_requests: Limit of requests in flight.
        max_bytes: Limit of their bytes.
        clock_s: Any monotonic clock, the same in all processes of the server.
        counts: What tenants have in the others; None if there are none.

    Attributes:
        num_requests: Requests in flight.
        num_bytes: Their bytes.
        epoch: The epoch of requests that are admitted now.
    """

    def __init__(
        self, max_requests: int, max_bytes: int, clock_s: Callable[[], float] = time.monotonic, counts: TenantCounts | None = None
    ) -> None:
        self._elsewhere = counts
        self._bounded = BoundedLabels()
        self._counts: dict[str, _Counts] = {}
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._clock_s = clock_s
        self._accounts: dict[str, _Account] = {}
        self._sweep_at = _MIN_SWEEP
        self._heaviest = 0.0
        self._stay_s = _FIRST_STAY_S
        self.num_requests = 0
        self.num_bytes = 0
        self.epoch = AdmissionEpoch()
        self._epochs: list[AdmissionEpoch] = []

    def begin_epoch(self) -> Callable[[], bool]:
        """Begins another epoch. Returns a function that says whether all requests admitted before have ended."""
        self._epochs = [epoch for epoch in (*self._epochs, self.epoch) if epoch.num_requests]
        self.epoch, before = AdmissionEpoch(), tuple(self._epochs)
        return lambda: not any(epoch.num_requests for epoch in before)

    @property
    def num_accounts(self) -> int:
        """Known tenants: all with something in flight, and a few that have sent recently."""
        return len(self._accounts)

    def in_flight(self) -> dict[str, tuple[int, int]]:
        """Returns what tenants have in flight here, requests and bytes; of many tenants, those with the most requests."""
        busy = [(name, account) for name, account in self._accounts.items() if account.num_requests]
        busiest = heapq.nlargest(_MAX_SHOWN, busy, key=lambda item: item[1].num_requests)
        return {name: (account.num_requests, account.num_bytes) for name, account in busiest}

    def admit(self, tenant: Tenant, num_bytes: int = 0) -> Ticket:
        """Admits a request. Its room is freed when the ticket's block ends, so enter the ticket.

        Args:
            num_bytes: Size of its body, as far as known; `Ticket.grow` adds the rest.

        Raises:
            TenantLimitError: If its tenant has too much in flight, or sends too fast. Says when to come back.
            CapacityError: If there is too much in flight in all.
        """
        now_s = self._clock_s()
        account = self._accounts.get(tenant.name)
        if account is None:
            account = self._open(tenant, now_s)
        if tenant.max_requests is not None and (held := account.num_requests_in_all()) >= tenant.max_requests:
            raise self._over("tenant_requests", tenant, account, f"{held} requests in flight, and may have {tenant.max_requests}")
        if self.num_requests >= self._max_requests:
            raise self._full("server_requests", account, f"{self.num_requests} requests", f"{self._max_requests}")
        if (
            tenant.name
            and account.num_requests
            and self._is_beyond_share(tenant, account, account.num_requests + 1, self._max_requests - self.num_requests - 1)
        ):
            text = f"{account.num_requests} requests in flight: its share, as others need room too"
            raise self._over("tenant_share", tenant, account, text)
        if num_bytes:
            self._check_bytes(tenant, account, num_bytes, is_only=not account.num_requests)
        if tenant.max_requests_per_s is not None:  # last, so that only admitted requests pay
            self._take_token(tenant, account, tenant.max_requests_per_s, now_s)
        if not account.num_requests:
            account.weight = tenant.weight
            self._heaviest = max(self._heaviest, tenant.weight)
        account.counts.num_admitted += 1
        account.num_requests += 1
        account.num_bytes += num_bytes
        self.num_requests += 1
        self.epoch.num_requests += 1
        self.num_bytes += num_bytes
        if account.elsewhere is not None:
            account.publish(account.elsewhere)
        return Ticket(self, tenant, account, num_bytes, now_s)

    # For tickets

    def take_bytes(self, tenant: Tenant, account: _Account, num_bytes: int) -> None:
        self._check_bytes(tenant, account, num_bytes, is_only=account.num_requests == 1)
        account.num_bytes += num_bytes
        self.num_bytes += num_bytes
        if account.elsewhere is not None:
            account.publish(account.elsewhere)

    def release(self, tenant: Tenant, account: _Account, num_bytes: int, since_s: float) -> None:
        account.num_requests -= 1
        account.num_bytes -= num_bytes
        self.num_requests -= 1
        self.num_bytes -= num_bytes
        if account.elsewhere is not None:
            account.publish(account.elsewhere)
        self._stay_s += _SMOOTHING * (self._clock_s() - since_s - self._stay_s)
        if not account.num_requests and account.weight >= self._heaviest:
            self._heaviest = max((other.weight for other in self._accounts.values() if other.num_requests), default=0.0)

    # Rules

    def _check_bytes(self, tenant: Tenant, account: _Account, num_bytes: int, *, is_only: bool) -> None:
        held = account.num_bytes + num_bytes
        if tenant.max_bytes is not None and (in_all := account.num_bytes_in_all()) + num_bytes > tenant.max_bytes:
            raise self._over("tenant_bytes", tenant, account, f"{in_all} bytes in flight, and may have {tenant.max_bytes}")
        free = self._max_bytes - self.num_bytes - num_bytes
        if free < 0:
            limit = f"{self._max_bytes}, and the request adds {num_bytes}"
            raise self._full("server_bytes", account, f"{self.num_bytes} bytes", limit)
        # The tenant's only request may be as large as there is room; of several, each counts.
        if tenant.name and not is_only and self._is_beyond_share(tenant, account, held, free):
            text = f"{account.num_bytes} bytes in flight: its share, as others need room too"
            raise self._over("tenant_share", tenant, account, text)

    def _is_beyond_share(self, tenant: Tenant, account: _Account, held: int, free: int) -> bool:
        """Returns whether a tenant would hold too much compared to what would then be free."""
        return held > _GREED * account.weight / self._heaviest * free

    def _take_token(self, tenant: Tenant, account: _Account, rate: float, now_s: float) -> None:
        """Takes a token: `rate` per second, with a burst of one second's worth, and at least one."""
        full_s = max(account.full_s, now_s)
        if account.elsewhere is not None:
            full_s = max(full_s, account.elsewhere.full_s())
        wait_s = full_s - now_s - (max(1.0, rate) - 1.0) / rate
        if wait_s > _ROUNDING_S:
            _count(account, "tenant_rate")
            raise TenantLimitError(f"tenant {tenant.name!r} sends more than {rate:g} requests per second", wait_s)
        account.full_s = full_s + 1.0 / rate

    # Errors

    def _over(self, reason: str, tenant: Tenant, account: _Account, excess: str) -> TenantLimitError:
        _count(account, reason)
        return TenantLimitError(f"tenant {tenant.name!r} has {excess}", self._soon(account.num_requests))

    def _full(self, reason: str, account: _Account, held: str, limit: str) -> CapacityError:
        _count(account, reason)
        return CapacityError(f"{held} are in flight, the server takes {limit}", self._soon(self.num_requests))

    def _soon(self, num_requests: int) -> float:
        """Estimates when the next of `num_requests` in flight ends, by how long requests stayed recently."""
        return min(_MAX_RETRY_S, max(_MIN_RETRY_S, self._stay_s / max(1, num_requests)))

    # Accounts

    def _open(self, tenant: Tenant, now_s: float) -> _Account:
        if len(self._accounts) >= self._sweep_at:
            self._forget_idle(now_s)
        counts = self._counts.setdefault(self._label_of(tenant.name), _Counts())
        account = self._accounts[tenant.name] = _Account(tenant.weight, now_s, counts)
        if self._elsewhere is not None and tenant.is_limited:
            account.elsewhere = self._elsewhere.of(tenant.name)
        return account

    def _label_of(self, name: str) -> str:
        return self._bounded.label_of(name) if name else _ANONYMOUS

    def _forget_idle(self, now_s: float) -> None:
        """Forgets tenants with nothing in flight and a full bucket. Runs again when there are twice as many as are left."""
        self._accounts = {
            name: account for name, account in self._accounts.items() if account.num_requests or account.full_s > now_s
        }
        self._sweep_at = max(_MIN_SWEEP, 2 * len(self._accounts))

    # Metrics

    def measure(self, readings: Readings) -> None:
        for label, counts in self._counts.items():
            readings.add(catalogue.ADMITTED, counts.num_admitted, label)
            for reason, number in counts.refusals.items():
                readings.add(catalogue.REFUSED, number, label, reason)
        for name, account in self._accounts.items():
            label = self._label_of(name)
            readings.add(catalogue.TENANT_REQUESTS, account.num_requests, label)
            readings.add(catalogue.TENANT_BYTES, account.num_bytes, label)


def _count(account: _Account, reason: str) -> None:
    refusals = account.counts.refusals
    refusals[reason] = refusals.get(reason, 0) + 1
