"""Peers dial until an orchestrator is there, then say hello to it."""

import asyncio
import time
from functools import partial

from dyorc.transport.link import dial
from dyorc.transport.wake_up import WakeUp
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.links.hub import CONFIG, Hub, peer_processes

FOREVER_S = 2 * TIMEOUT_S
"""A test that waits this long fails."""


async def test_the_next_orchestrator_at_the_same_address_learns_who_is_there(address: str) -> None:
    with peer_processes(address, 2) as found:  # they start before any orchestrator
        for _ in range(3):
            async with Hub(address) as hub:
                for process in found:
                    peer = await hub.meet(process)
                    assert await hub.ask(peer, b"echo", b"new", answer=b"echo") == [b"echo", b"new"]


async def test_a_peer_says_hello_as_soon_as_it_has_dialled_again(unix_address: str) -> None:
    """However rarely it says hello otherwise."""
    with peer_processes(unix_address, 1, FOREVER_S) as (process,):
        async with Hub(unix_address) as hub:
            peer = await hub.meet(process)
            used_s = float((await hub.ask(peer, b"cpu", answer=b"cpu"))[1])
        await asyncio.sleep(1.0)
        async with Hub(unix_address) as hub:
            peer = await hub.meet(process)
            used_s = float((await hub.ask(peer, b"cpu", answer=b"cpu"))[1]) - used_s
            assert used_s < 0.5, "it waited without spinning, which would have taken a second"


async def test_receiving_without_waiting_returns_at_once_if_there_is_nothing(unix_address: str) -> None:
    dealer = dial(unix_address, CONFIG, FOREVER_S)
    assert dealer.receive(is_waiting=False) is None
    dealer.close()


async def test_messages_sent_while_nobody_listens_are_dropped(unix_address: str) -> None:
    dealer = dial(unix_address, CONFIG, 0.3)
    try:
        dealer.send([b"lost"])
        started_s = time.monotonic()
        assert dealer.receive() is None
        assert time.monotonic() - started_s >= 0.3
        async with Hub(unix_address) as hub:
            while not hub.heard:
                assert await asyncio.to_thread(dealer.receive) is None
                dealer.send([b"here"])
                await asyncio.sleep(0.05)
            assert hub.heard[0][1] == [b"here"]
        dealer.send([b"lost, too"])
        dealer.send([b"lost, too"])
        assert await asyncio.to_thread(dealer.receive) is None
    finally:
        dealer.close()


async def test_another_thread_ends_the_wait_for_a_message(address: str) -> None:
    with WakeUp() as wake:
        async with Hub(address) as hub:
            dealer = dial(address, CONFIG, FOREVER_S)
            try:
                dealer.send([b"hello"])
                await wait_until_async(lambda: hub.heard, "it is there")
                waiting = asyncio.create_task(asyncio.to_thread(dealer.receive, wake=wake))
                await asyncio.sleep(0.05)
                assert not waiting.done()
                wake.set()
                assert await waiting is None
                peer = hub.heard[0][0]
                assert hub.link.send(peer, [b"word"])
                receive = partial(dealer.receive, wake=wake)
                while (frames := await asyncio.to_thread(receive)) is None:  # it is still set, and nothing has come yet
                    pass
                assert bytes(frames[0]) == b"word"
                assert wake.clear()
                hub.link.send(peer, [b"next"])
                frames = await asyncio.to_thread(receive)
                assert frames is not None
                assert bytes(frames[0]) == b"next"
            finally:
                dealer.close()


async def test_a_wait_for_an_orchestrator_that_is_not_there_ends_too(unix_address: str) -> None:
    dealer = dial(unix_address, CONFIG, FOREVER_S)
    with WakeUp() as wake:
        waiting = asyncio.create_task(asyncio.to_thread(dealer.receive, wake=wake))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        wake.set()
        assert await waiting is None
    dealer.close()
