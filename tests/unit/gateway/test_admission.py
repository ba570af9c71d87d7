"""How much may be in flight: limits of each tenant, limits of all, and shares in between."""

import contextlib

import pytest

from dyorc.errors import CapacityError, TenantLimitError
from dyorc.gateway.admission import Admission, Ticket
from dyorc.gateway.tenants import ANONYMOUS, Tenant
from tests.manual_clock import ManualClock

LARGE = 10**12


def flood(admission: Admission, tenant: Tenant, num_bytes: int = 0) -> list[Ticket]:
    """Admits as many requests of a tenant as there is room for."""
    tickets: list[Ticket] = []
    with contextlib.suppress(CapacityError):
        while True:
            tickets.append(admission.admit(tenant, num_bytes))
    return tickets


def end(tickets: list[Ticket]) -> None:
    """Ends requests."""
    while tickets:
        with tickets.pop():
            pass


def test_without_keys_everything_may_be_used() -> None:
    admission = Admission(10, 100)
    tickets = flood(admission, ANONYMOUS)
    assert len(tickets) == 10
    with pytest.raises(CapacityError, match="10 requests are in flight, the server takes 10") as caught:
        admission.admit(ANONYMOUS)
    assert not isinstance(caught.value, TenantLimitError)
    end(tickets)
    assert len(flood(admission, ANONYMOUS, 30)) == 3
    with pytest.raises(CapacityError, match="90 bytes are in flight, the server takes 100, and the request adds 11"):
        admission.admit(ANONYMOUS, 11)
    assert admission.admit(ANONYMOUS, 10)


def test_a_tenant_has_limits_of_its_own() -> None:
    admission = Admission(1000, LARGE)
    few = Tenant(name="few", max_requests=2)
    small = Tenant(name="small", max_bytes=100)
    held = flood(admission, few)
    assert len(held) == 2
    with pytest.raises(TenantLimitError, match="tenant 'few' has 2 requests in flight, and may have 2"):
        admission.admit(few)
    with pytest.raises(TenantLimitError, match="tenant 'small' has 0 bytes in flight, and may have 100"):
        admission.admit(small, 101)
    with admission.admit(small, 60) as ticket:
        ticket.grow(40)
        with pytest.raises(TenantLimitError, match="tenant 'small' has 100 bytes in flight, and may have 100"):
            ticket.grow(1)
        assert admission.num_bytes == 100
    assert (admission.num_bytes, admission.num_requests) == (0, 2)
    end(held)
    assert admission.admit(few)


def test_a_request_that_is_refused_takes_nothing() -> None:
    admission = Admission(2, 100, ManualClock())
    tenant = Tenant(name="a", max_bytes=50, max_requests_per_s=1.0)
    for _ in range(3):
        with pytest.raises(TenantLimitError):
            admission.admit(tenant, 51)
    assert (admission.num_requests, admission.num_bytes) == (0, 0)
    with admission.admit(tenant, 50):  # and its token is still there
        pass


def test_requests_per_second_are_a_bucket_that_says_when_to_come_back() -> None:
    clock = ManualClock()
    admission = Admission(1000, LARGE, clock)
    tenant = Tenant(name="a", max_requests_per_s=4.0)
    end(flood_of := flood(admission, tenant))
    assert flood_of == []
    with pytest.raises(TenantLimitError, match="tenant 'a' sends more than 4 requests per second") as caught:
        admission.admit(tenant)
    assert caught.value.retry_after_s == pytest.approx(0.25)
    clock.now_s += caught.value.retry_after_s or 0
    with admission.admit(tenant):
        pass
    clock.now_s += 0.2
    with pytest.raises(TenantLimitError) as caught:
        admission.admit(tenant)
    assert caught.value.retry_after_s == pytest.approx(0.05)
    clock.now_s += 100
    assert len(flood(admission, tenant)) == 4


def test_a_tenant_that_may_send_less_than_one_a_second_may_send_one() -> None:
    clock = ManualClock()
    admission = Admission(1000, LARGE, clock)
    tenant = Tenant(name="a", max_requests_per_s=0.1)
    assert len(flood(admission, tenant)) == 1
    with pytest.raises(TenantLimitError) as caught:
        admission.admit(tenant)
    assert caught.value.retry_after_s == pytest.approx(10)
    clock.now_s += 10
    assert len(flood(admission, tenant)) == 1


@pytest.mark.parametrize("limit", [2, 3, 9, 100, 4096])
def test_a_flood_leaves_room_for_the_next_tenant(limit: int) -> None:
    admission = Admission(limit, LARGE)
    flooding, other = Tenant(name="flooding", weight=1000.0), Tenant(name="other", weight=0.001)
    held = flood(admission, flooding)
    assert limit * 0.8 - 1 <= len(held) <= max(limit - 1, limit * 8 / 9)
    with pytest.raises(TenantLimitError, match="its share"):
        admission.admit(flooding)
    assert admission.admit(other)


def test_a_flood_of_bytes_leaves_room_for_the_next_tenant() -> None:
    admission = Admission(10_000, 9000)
    flooding, other = Tenant(name="flooding"), Tenant(name="other")
    assert len(flood(admission, flooding, 100)) == 80
    with pytest.raises(TenantLimitError, match="8000 bytes in flight: its share"):
        admission.admit(flooding, 1)
    with admission.admit(other, 500) as ticket:
        ticket.grow(500)
        with pytest.raises(CapacityError, match="the server takes 9000"):
            ticket.grow(1)


def test_several_requests_of_a_tenant_may_grow_only_to_its_share() -> None:
    admission = Admission(10_000, 9000)
    flooding = Tenant(name="flooding")
    with admission.admit(flooding), admission.admit(flooding) as ticket:
        ticket.grow(8000)
        with pytest.raises(TenantLimitError, match="8000 bytes in flight: its share"):
            ticket.grow(1)


def test_the_only_request_of_a_tenant_may_be_as_large_as_there_is_room() -> None:
    admission = Admission(10, 100)
    with admission.admit(Tenant(name="a"), 60) as ticket:
        ticket.grow(40)


def test_tenants_that_flood_share_by_their_weights() -> None:
    admission = Admission(9900, LARGE)
    light, heavy = Tenant(name="light", weight=1.0), Tenant(name="heavy", weight=9.0)
    held = {light: flood(admission, light), heavy: flood(admission, heavy)}
    for _ in range(100):  # requests end, and both try again
        for tenant, tickets in held.items():
            end([tickets.pop() for _ in range(len(tickets) // 10)])
            tickets += flood(admission, tenant)
    assert len(held[heavy]) / len(held[light]) == pytest.approx(9, rel=0.1)
    assert len(held[heavy]) + len(held[light]) > 9900 * 0.85
    end(held[heavy])
    held[light] += flood(admission, light)
    assert len(held[light]) == 8800  # 8/9 again, as it is alone


def test_refusals_estimate_when_there_will_be_room() -> None:
    clock = ManualClock()
    admission = Admission(1000, LARGE, clock)
    tenant = Tenant(name="a", max_requests=4)
    for _ in range(100):
        tickets = flood(admission, tenant)
        clock.now_s += 2.0
        end(tickets)
    flood(admission, tenant)
    with pytest.raises(TenantLimitError) as caught:
        admission.admit(tenant)
    assert caught.value.retry_after_s == pytest.approx(0.5, rel=0.01)


def test_inactive_tenants_are_forgotten() -> None:
    clock = ManualClock()
    admission = Admission(1000, LARGE, clock)
    staying = admission.admit(Tenant(name="staying"))
    for number in range(10_000):
        clock.now_s += 0.1
        with admission.admit(Tenant(name=str(number), max_requests_per_s=1.0)):
            pass
        assert admission.num_accounts <= 130
    with staying:
        assert admission.num_requests == 1


def test_a_tenant_cannot_have_its_bucket_forgotten() -> None:
    clock = ManualClock()
    admission = Admission(1000, LARGE, clock)
    tenant = Tenant(name="slow", max_requests_per_s=0.001)
    end(flood(admission, tenant))
    for number in range(1000):
        clock.now_s += 0.1
        with admission.admit(Tenant(name=str(number))):
            pass
    with pytest.raises(TenantLimitError):
        admission.admit(tenant)
