"""Each transport is used by one thread at a time."""

import asyncio
import threading

import httpx
import pytest

from dyorc.client.http import KEEP_ALIVE_S
from dyorc.client.transport_pools import AsyncTransportPool, Transport, TransportPool


class _Transport:
    def __init__(self) -> None:
        self.is_closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        raise NotImplementedError

    def abort(self) -> None:
        self.is_closed = True


class _Makes:
    """Makes transports, under a clock that the test moves."""

    def __init__(self) -> None:
        self.made: list[_Transport] = []
        self.now_s = 100.0
        self.error: Exception | None = None

    def pool(self, max_size: int = 4) -> TransportPool:
        return TransportPool(self._make, max_size, lambda: self.now_s)

    def _make(self) -> _Transport:
        if self.error is not None:
            raise self.error
        self.made.append(_Transport())
        return self.made[-1]


def test_the_transport_used_last_is_lent_first() -> None:
    makes = _Makes()
    pool = makes.pool()
    first, second = pool.lend(0), pool.lend(0)
    assert first is not second
    pool.take_back(first)
    pool.take_back(second)
    lent = [pool.lend(0), pool.lend(0)]
    assert [loan.transport for loan in lent] == [second.transport, first.transport]
    assert len(makes.made) == 2


def test_a_further_caller_waits_until_a_transport_comes_back() -> None:
    pool = _Makes().pool(max_size=1)
    lent = pool.lend(0)
    with pytest.raises(httpx.PoolTimeout):
        pool.lend(0.001)
    found: list[Transport] = []
    waiting = threading.Thread(target=lambda: found.append(pool.lend(None).transport))
    waiting.start()
    pool.take_back(lent)
    waiting.join(30)
    assert found == [lent.transport]


def test_a_transport_that_cannot_be_made_takes_no_place() -> None:
    makes = _Makes()
    pool = makes.pool(max_size=2)
    lent = pool.lend(0)
    makes.error = OSError("too many open files")
    for _ in range(3):
        with pytest.raises(OSError, match="too many"):
            pool.lend(0)
    makes.error = None
    assert pool.lend(0).transport is not lent.transport


def test_transports_idle_for_longer_than_servers_keep_them_are_closed() -> None:
    makes = _Makes()
    pool = makes.pool()
    first, second = pool.lend(0), pool.lend(0)
    pool.take_back(first)
    makes.now_s += KEEP_ALIVE_S - 1
    pool.take_back(second)
    makes.now_s += 2
    assert pool.lend(0).transport is second.transport
    assert [transport.is_closed for transport in makes.made] == [True, False]


def test_closing_closes_idle_transports_at_once_and_lent_ones_when_they_return() -> None:
    makes = _Makes()
    pool = makes.pool()
    loan, lent = pool.lend(0), pool.lend(0)
    pool.take_back(loan)
    pool.close()
    assert [transport.is_closed for transport in makes.made] == [True, False]
    pool.take_back(lent)
    assert [transport.is_closed for transport in makes.made] == [True, True]


def test_no_two_threads_hold_the_same_transport() -> None:
    pool = _Makes().pool(max_size=3)
    held: set[int] = set()
    clashes: list[int] = []

    def work() -> None:
        for _ in range(200):
            loan = pool.lend(None)
            if id(loan.transport) in held:
                clashes.append(id(loan.transport))
            held.add(id(loan.transport))
            held.discard(id(loan.transport))
            pool.take_back(loan)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not clashes


def test_a_loan_that_is_lost_frees_its_place() -> None:
    pool = _Makes().pool(max_size=1)
    for _ in range(3):
        assert isinstance(pool.lend(0).transport, _Transport)  # as if an exception came before it was stored


def test_a_discarded_transport_is_closed_and_frees_its_place() -> None:
    makes = _Makes()
    pool = makes.pool(max_size=1)
    loan = pool.lend(0)
    pool.discard(loan)
    assert makes.made[0].is_closed
    assert pool.lend(0).transport is not loan.transport


def test_a_pool_that_was_renewed_takes_no_earlier_transport_back() -> None:
    makes = _Makes()
    pool = makes.pool(max_size=1)
    before = pool.lend(0)
    pool.renew()
    pool.take_back(before)
    loan = pool.lend(0)
    assert loan.transport is not before.transport
    with pytest.raises(httpx.PoolTimeout):
        pool.lend(0.001)


class _AsyncTransport:
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise NotImplementedError

    async def abort(self) -> None:
        pass


def test_on_an_event_loop_too_a_lost_loan_frees_its_place() -> None:
    async def lose() -> None:
        pool = AsyncTransportPool(_AsyncTransport, 1)
        assert isinstance((await pool.lend()).transport, _AsyncTransport)
        loan = await pool.lend()
        waiting = asyncio.ensure_future(pool.lend())
        await asyncio.sleep(0)
        assert not waiting.done()
        await pool.take_back(loan)
        assert (await waiting).transport is loan.transport

    asyncio.run(lose())
