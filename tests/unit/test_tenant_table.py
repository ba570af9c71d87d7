"""A tenant's limits hold for all cells of a server together."""

import os
from collections.abc import Iterator

import pytest

from dyorc.errors import TenantLimitError
from dyorc.gateway.admission import Admission, Ticket
from dyorc.gateway.tenants import Tenant
from dyorc.supervisor import tenant_table
from dyorc.supervisor.tenant_table import TenantTable, clear_in_flight, make_table
from tests.manual_clock import ManualClock

NUM_CELLS = 3


@pytest.fixture
def table() -> Iterator[int]:
    descriptor = make_table(NUM_CELLS)
    yield descriptor
    os.close(descriptor)


def cells(table: int, clock: ManualClock | None = None) -> list[Admission]:
    clock = clock or ManualClock()
    return [Admission(1000, 10**6, clock, TenantTable(table, number, NUM_CELLS)) for number in range(NUM_CELLS)]


def test_requests_in_flight_count_in_all_cells(table: int) -> None:
    tenant, other = Tenant(name="a", max_requests=4), Tenant(name="b", max_requests=1)
    admissions = cells(table)
    tickets = [admissions[at % NUM_CELLS].admit(tenant) for at in range(4)]
    for admission in admissions:
        with pytest.raises(TenantLimitError, match="tenant 'a' has 4 requests in flight, and may have 4"):
            admission.admit(tenant)
        admission.admit(other).release()
    tickets.pop().release()
    tickets.append(admissions[1].admit(tenant))
    for ticket in tickets:
        ticket.release()
    assert [held for held in (admissions[2].admit(tenant) for _ in range(4)) if isinstance(held, Ticket)]


def test_bytes_in_flight_count_in_all_cells(table: int) -> None:
    tenant = Tenant(name="a", max_bytes=100)
    first, second, _ = cells(table)
    ticket = first.admit(tenant, 40)
    ticket.grow(20)
    with pytest.raises(TenantLimitError, match="tenant 'a' has 60 bytes in flight, and may have 100"):
        second.admit(tenant, 41)
    with second.admit(tenant, 40), pytest.raises(TenantLimitError, match="tenant 'a' has 100 bytes"):
        ticket.grow(1)
    ticket.grow(40)


def test_a_bucket_is_everybodys(table: int) -> None:
    clock = ManualClock()
    admissions = cells(table, clock)
    tenant = Tenant(name="a", max_requests_per_s=6.0)

    def num_admitted() -> int:
        num = 0
        for at in range(30):
            try:
                admissions[at % NUM_CELLS].admit(tenant).release()
            except TenantLimitError:
                continue
            num += 1
        return num

    assert num_admitted() == 6
    clock.now_s += 0.5
    assert num_admitted() == 3
    assert [num_admitted() for _ in range(2)] == [0, 0]
    clock.now_s += 100
    assert num_admitted() == 6


def test_what_was_in_flight_in_a_cell_that_ended_is_forgotten_but_not_its_tokens(table: int) -> None:
    tenant = Tenant(name="a", max_requests=1, max_requests_per_s=1.0)
    clock = ManualClock()
    first, second, _ = cells(table, clock)
    first.admit(tenant)
    with pytest.raises(TenantLimitError, match="1 requests in flight"):
        second.admit(tenant)
    clear_in_flight(table, 0)
    with pytest.raises(TenantLimitError, match="more than 1 requests per second"):
        second.admit(tenant)
    clock.now_s += 1
    second.admit(tenant)
    again = Admission(1000, 10**6, clock, TenantTable(table, 0, NUM_CELLS))
    with pytest.raises(TenantLimitError, match="1 requests in flight"):
        again.admit(tenant)


def test_tenants_that_share_a_place_do_not_share_limits(table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {f"t{at}": 1 + at * tenant_table._ROWS for at in range(tenant_table._MAX_STEPS + 1)}  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(tenant_table, "_key_of", numbers.__getitem__)
    first, second, _ = cells(table)
    *fitting, last = [Tenant(name=name, max_requests=1) for name in numbers]
    for tenant in fitting:
        first.admit(tenant)
    for tenant in reversed(fitting):  # in other rows there
        with pytest.raises(TenantLimitError, match="1 requests in flight"):
            second.admit(tenant)
    second.admit(last)
    first.admit(last)  # there is no row left, so it counts in each cell by itself
