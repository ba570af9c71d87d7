"""Admission under any order of events: no limit is ever passed, nothing is ever lost, and refusals are never wrong."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dyorc.errors import CapacityError, TenantLimitError
from dyorc.gateway.admission import Admission, Ticket
from dyorc.gateway.tenants import ANONYMOUS, Tenant
from tests.effort import examples

MAX_REQUESTS = 12
MAX_BYTES = 1000

TENANTS = [
    ANONYMOUS,
    Tenant(name="free"),
    Tenant(name="heavy", weight=50.0, max_bytes=700),
    Tenant(name="few", max_requests=2),
    Tenant(name="slow", weight=0.1, max_requests_per_s=2.0),
]


class AdmissionMachine(RuleBasedStateMachine):
    """Keeps its own count, in the simplest way: a list of what is in flight."""

    tickets: Bundle[Any] = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.admission = Admission(MAX_REQUESTS, MAX_BYTES, lambda: self.now_s)
        self.held: dict[Ticket, tuple[Tenant, int]] = {}
        self.sent_s: list[float] = []

    @rule(target=tickets, tenant=st.sampled_from(TENANTS), num_bytes=st.integers(0, 600))
    def admit(self, tenant: Tenant, num_bytes: int) -> Ticket | None:
        """Sends a request."""
        try:
            ticket = self.admission.admit(tenant, num_bytes)
        except CapacityError as error:
            self.check_refusal(tenant, num_bytes, error)
            return None
        self.held[ticket] = (tenant, num_bytes)
        if tenant.name == "slow":
            self.sent_s.append(self.now_s)
        return ticket

    @rule(ticket=tickets, num_bytes=st.integers(1, 600))
    def grow(self, ticket: Ticket | None, num_bytes: int) -> None:
        """Lets more of a request come."""
        if ticket not in self.held:
            return
        tenant, before = self.held[ticket]
        try:
            ticket.grow(num_bytes)
        except CapacityError:
            return
        self.held[ticket] = (tenant, before + num_bytes)

    @rule(ticket=consumes(tickets))
    def end(self, ticket: Ticket | None) -> None:
        """Ends a request."""
        if ticket is not None:
            with ticket:
                pass
            del self.held[ticket]

    @rule(seconds=st.floats(0.01, 3))
    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.now_s += seconds

    def check_refusal(self, tenant: Tenant, num_bytes: int, error: CapacityError) -> None:
        """Checks that a refusal says when to come back. A tenant that holds nothing, and sends no faster than it may, is
        admitted as long as there is room.
        """
        assert (error.retry_after_s or 0) > 0
        others = sum(size for _, size in self.held.values())
        has_room = len(self.held) < MAX_REQUESTS and others + num_bytes <= MAX_BYTES
        is_new = all(holder is not tenant for holder, _ in self.held.values())
        if has_room and is_new:
            assert isinstance(error, TenantLimitError)
            assert tenant.name == "slow" or (tenant.max_bytes is not None and num_bytes > tenant.max_bytes)
        if not isinstance(error, TenantLimitError):
            assert not has_room

    @invariant()
    def counts_are_right_and_within_limits(self) -> None:
        """The counts are those of what is in flight, and no limit is passed."""
        sizes = [size for _, size in self.held.values()]
        assert self.admission.num_requests == len(sizes) <= MAX_REQUESTS
        assert self.admission.num_bytes == sum(sizes) <= MAX_BYTES
        for tenant in TENANTS:
            its = [size for holder, size in self.held.values() if holder is tenant]
            assert tenant.max_requests is None or len(its) <= tenant.max_requests
            assert tenant.max_bytes is None or sum(its) <= tenant.max_bytes

    @invariant()
    def nobody_sends_faster_than_it_may(self) -> None:
        """In any stretch of time, a tenant sends at most what its bucket held at first, and then its rate."""
        for first, start_s in enumerate(self.sent_s):
            num_sent = len(self.sent_s) - first
            assert num_sent <= 2 + 2 * (self.sent_s[-1] - start_s) + 1e-6

    def teardown(self) -> None:
        """Checks that all room is given back at the end."""
        for ticket in self.held:
            with ticket:
                pass
        assert (self.admission.num_requests, self.admission.num_bytes) == (0, 0)


TestAdmission = AdmissionMachine.TestCase
TestAdmission.settings = settings(max_examples=examples(100), stateful_step_count=60)
