"""The end of a peer is noticed after its last messages, and leaves nothing behind."""

import asyncio
import os
import signal
import time

from dyorc.config import LinkConfig
from dyorc.transport.link import dial
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.links.hub import CONFIG, DEAF, Hub, peer_processes
from tests.integration.stack import num_descriptors


async def test_messages_sent_before_the_link_was_closed_arrive(address: str) -> None:
    with peer_processes(address, 1) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"speak", b"500"])
            hub.link.send(peer, [b"echo", b"never read"])  # or it has ended already
            await wait_until_async(lambda: hub.lost, "its end is noticed")
            assert hub.said(peer, b"word") == [[b"word", str(at).encode()] for at in range(500)]
            assert set(hub.lost) == {peer}
            await wait_until_async(  # what it sent before may have come late
                lambda: not hub.link.send(peer, [b"echo"]), "nothing is sent to it"
            )


async def test_the_last_messages_of_a_killed_peer_arrive_before_its_end_is_reported(unix_address: str) -> None:
    with peer_processes(unix_address, 1) as (process,):
        async with Hub(unix_address, DEAF) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"die", b"500"])
            await wait_until_async(lambda: hub.lost, "its end is noticed")
            assert len(hub.said(peer, b"word")) == 500
            assert hub.lost == [peer]


async def test_last_messages_arrive_even_if_an_answer_was_being_sent(unix_address: str) -> None:
    """Writing to a connection whose end has not been noticed yet does not hide the messages in it."""
    async with Hub(unix_address) as hub:
        dealer = dial(unix_address, CONFIG, 1.0)
        dealer.send([b"hello"])
        await wait_until_async(lambda: hub.heard, "it is heard")
        peer = hub.heard[0][0]
        dealer.send([b"word"])
        dealer.close()
        assert hub.link.send(peer, [b"too late"])
        assert hub.link.send(peer, [b"too late, again"])
        await wait_until_async(lambda: hub.lost, "its end is noticed")
        assert hub.said(peer, b"word") == [[b"word"]]


async def test_a_killed_peer_is_noticed_at_once(address: str) -> None:
    with peer_processes(address, 2) as (first, second):
        async with Hub(address, DEAF) as hub:
            peer, other = await hub.meet(first), await hub.meet(second)
            first.kill()
            await wait_until_async(lambda: hub.lost, "its end is noticed")
            assert hub.lost == [peer]
            assert await hub.ask(other, b"echo", b"here", answer=b"echo") == [b"echo", b"here"]


async def test_a_stopped_peer_is_given_up_and_welcome_again_when_it_goes_on(address: str) -> None:
    with peer_processes(address, 2) as (first, second):
        async with Hub(address) as hub:
            peer, other = await hub.meet(first), await hub.meet(second)
            os.kill(first.pid, signal.SIGSTOP)
            stopped_s = time.monotonic()
            await wait_until_async(lambda: hub.lost, "the peer is given up")
            noticed_s = time.monotonic() - stopped_s
            print(f"\nnoticed after {noticed_s:.2f} s")
            assert noticed_s >= CONFIG.heartbeat_timeout_s - CONFIG.heartbeat_interval_s
            assert hub.lost == [peer]
            assert not hub.link.send(peer, [b"echo"])
            os.kill(first.pid, signal.SIGCONT)
            again = await hub.meet(first)
            assert again != peer or not address.startswith("unix")
            assert await hub.ask(again, b"echo", b"back", answer=b"echo") == [b"echo", b"back"]
            assert await hub.ask(other, b"echo", b"here", answer=b"echo") == [b"echo", b"here"]


async def test_a_peer_that_is_stopped_briefly_keeps_its_connection(address: str) -> None:
    with peer_processes(address, 1) as (process,):
        async with Hub(address, LinkConfig(heartbeat_timeout_s=TIMEOUT_S)) as hub:
            peer = await hub.meet(process)
            for _ in range(3):
                os.kill(process.pid, signal.SIGSTOP)
                await asyncio.sleep(2 * CONFIG.heartbeat_interval_s)  # heartbeats are checked meanwhile
                os.kill(process.pid, signal.SIGCONT)
                assert await hub.ask(peer, b"echo", answer=b"echo") == [b"echo"]
            assert hub.lost == []


async def test_a_peer_whose_program_holds_the_interpreter_is_not_taken_for_dead(address: str) -> None:
    with peer_processes(address, 1) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            await hub.ask(peer, b"hold", b"2.5", answer=b"held")
            assert hub.lost == []


async def test_a_killed_peer_is_noticed_even_if_its_child_holds_the_connection(address: str) -> None:
    with peer_processes(address, 1) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"fork"])
            await asyncio.to_thread(process.wait)
            await wait_until_async(lambda: hub.lost, "its end is noticed")


async def test_connections_leave_no_descriptors_behind(address: str) -> None:
    async with Hub(address) as hub:
        await wait_until_async(lambda: True, "")
        num_before = num_descriptors()
        for at in range(30):
            dealer = dial(address, CONFIG, 1.0)
            dealer.send([b"hello"])
            await wait_until_async(lambda at=at: len(hub.heard) > at, "it is heard")
            dealer.close()
            await wait_until_async(lambda at=at: len(hub.lost) > at, "it is lost")
        assert num_descriptors() <= num_before + 1


async def test_dead_processes_leave_no_descriptors_behind(unix_address: str) -> None:
    with peer_processes(unix_address, 3) as found:
        async with Hub(unix_address) as hub:
            for process in found:
                await hub.meet(process)
            num_before = num_descriptors()
            for process in found:
                process.kill()
            await wait_until_async(lambda: len(hub.lost) == 3, "they are lost")
            assert num_descriptors() == num_before - 3 * 3, "a connection, and the file and the pidfd of a process each"
            assert {ending.reason for ending in hub.endings.values()} == {"its process was killed by signal 9, SIGKILL"}
