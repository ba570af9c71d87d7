"""Messages arrive whole and in order in both directions, and the receiver is told when there are no more."""

import asyncio
import threading

import numpy as np
import pytest

from dyorc.errors import TransportError
from dyorc.transport.column_codec import Frame
from dyorc.transport.link import dial, listen
from dyorc.transport.peer_process import LinkCallbacks
from dyorc.transport.unix_framing import MAX_FRAMES
from tests.deadlines import wait_until_async
from tests.integration.links.hub import CONFIG, Hub, peer_processes
from tests.integration.links.numbered import first_wrong, numbered


async def test_a_thousand_messages_both_ways_at_once_arrive_whole_and_in_order(address: str) -> None:
    num = 1000
    with peer_processes(address, 1, 30.0) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"exchange", str(num).encode()])
            for at in range(num):
                assert hub.link.send(peer, numbered(at))
                if at % 10 == 0:
                    await asyncio.sleep(0)
            await wait_until_async(lambda: hub.said(peer, b"checked"), "it has read all")
            assert hub.said(peer, b"checked") == [[b"checked", b""]]
            found = [frames for _, frames in hub.heard if frames[0] not in (b"hello", b"checked")]
            assert len(found) == num
            assert first_wrong(found) == ""
            sent = sum(len(frame) for at in range(num) for frame in numbered(at))
            assert hub.link.num_bytes_received > sent
            assert hub.link.num_bytes_sent > sent


async def test_empty_frames_and_any_number_of_them_arrive(address: str) -> None:
    with peer_processes(address, 1, 30.0) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            for num_frames in (1, 2, 1023, 1024, 1025, 5000):
                frames = [bytes([at % 256]) * (at * at % 37) for at in range(num_frames)]
                assert await hub.ask(peer, b"echo", *frames, answer=b"echo") == [b"echo", *frames]
                large = [bytes(3_000_001), b"", *frames, b"x" * 500_000]
                assert await hub.ask(peer, b"echo", *large, answer=b"echo") == [b"echo", *large]


async def test_the_end_of_a_burst_is_reported_once(unix_address: str) -> None:
    async with Hub(unix_address) as hub:
        dealers = [dial(unix_address, CONFIG, 1.0) for _ in range(3)]
        for dealer in dealers:
            dealer.send([b"hello"])
        await wait_until_async(lambda: len(hub.heard) == 3, "all are heard")
        hub.happened.clear()
        for _ in range(10):
            for dealer in dealers:
                dealer.send([b"word"])
        await wait_until_async(lambda: "drained" in hub.happened, "the end is reported")
        assert hub.happened == ["received"] * 30 + ["drained"]
        for dealer in dealers:
            dealer.close()
        await wait_until_async(lambda: len(hub.lost) == 3, "they are lost")
        assert hub.happened[31:] == ["lost"] * 3


async def test_the_receiver_is_told_when_there_are_no_more_messages(address: str) -> None:
    with peer_processes(address, 1, 30.0) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            await hub.ask(peer, b"echo", answer=b"echo")
            await wait_until_async(lambda: hub.happened[-1] == "drained", "the end is reported")


async def test_received_frames_are_aligned_and_belong_to_the_receiver(unix_address: str) -> None:
    kept: list[Frame] = []
    link = listen(unix_address, CONFIG, LinkCallbacks(lambda _, frames: kept.extend(frames), lambda: None, lambda *_: None))
    async with link:
        dealer = dial(unix_address, CONFIG, 1.0)
        sent = [bytes([at]) * (1 + at * 700) for at in range(100)]
        for at in range(0, 100, 4):
            await asyncio.to_thread(dealer.send, sent[at : at + 4])
        await wait_until_async(lambda: len(kept) == 100, "all are here")
        dealer.close()
    assert list(map(bytes, kept)) == sent
    assert {_place_of(frame) % 16 for frame in kept} == {0}
    for frame in kept:
        memoryview(frame)[:] = bytes(len(frame))
    assert not any(any(frame) for frame in kept)


def _place_of(frame: Frame) -> int:
    return np.frombuffer(frame, np.uint8).__array_interface__["data"][0]


async def test_a_message_with_too_few_or_too_many_frames_is_refused_by_its_sender(unix_address: str) -> None:
    async with Hub(unix_address) as hub:
        dealer = dial(unix_address, CONFIG, 1.0)
        for frames in ([], [b""] * (MAX_FRAMES + 1)):
            with pytest.raises(TransportError, match="expected 1 to"):
                dealer.send(frames)
        dealer.send([b""] * 100_000)
        await wait_until_async(lambda: hub.heard, "it is heard")
        assert hub.heard[0][1] == [b""] * 100_000
        with pytest.raises(TransportError, match="expected 1 to"):
            hub.link.send(hub.heard[0][0], [])
        dealer.close()


async def test_a_message_wakes_a_waiting_thread(address: str) -> None:
    async with Hub(address) as hub:
        dealer = dial(address, CONFIG, 30.0)
        dealer.send([b"hello"])
        await wait_until_async(lambda: hub.heard, "it is heard")
        found: list[list[Frame] | None] = []
        thread = threading.Thread(target=lambda: found.append(dealer.receive()))
        thread.start()
        assert hub.link.send(hub.heard[0][0], [b"wake", b"up"])
        await asyncio.to_thread(thread.join, 10)
        assert [list(map(bytes, frames or [])) for frames in found] == [[b"wake", b"up"]]
        dealer.close()
