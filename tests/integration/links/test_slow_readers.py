"""A reader that is slow gets everything in order and holds up nobody else."""

import subprocess
import time

from dyorc.transport.link import call
from tests.deadlines import wait_until, wait_until_async
from tests.integration.links.hub import CONFIG, Hub, peer_processes
from tests.integration.links.numbered import numbered


def wake(process: "subprocess.Popen[bytes]") -> None:
    """Writes the line that a sleeping peer waits for."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


async def test_a_slow_reader_gets_everything_in_order_and_holds_nobody_up(address: str) -> None:
    num, num_bytes = 300, 200_000
    with peer_processes(address, 2, 30.0) as (slow, quick):
        async with Hub(address) as hub:
            peer, other = await hub.meet(slow), await hub.meet(quick)
            assert hub.link.send(peer, [b"sleep", str(num).encode()])
            buffers = [bytearray(num_bytes) for _ in range(2)]
            for at in range(num):
                number, check_sum, empty, first, second = numbered(at, num_bytes)
                parts = [memoryview(buffers[0])[: len(first)], memoryview(buffers[1])[: len(second)]]
                parts[0][:], parts[1][:] = first, second
                assert hub.link.send(peer, [number, check_sum, empty, *parts])
                for buffer in buffers:
                    buffer[:] = bytes(num_bytes)  # the buffer is ours again
                if at == num - 10:
                    assert hub.said(peer, b"checked") == []
                    wake(slow)
                if at > num - 10:  # it reads while the event loop is blocked: new messages must not overtake waiting ones
                    read_until_s = time.monotonic() + 0.03
                    wait_until(lambda read_until_s=read_until_s: time.monotonic() > read_until_s, "it reads")
                elif at % 50 == 0:
                    assert await hub.ask(other, b"echo", b"here", answer=b"echo") == [b"echo", b"here"]
            await wait_until_async(lambda: hub.said(peer, b"checked"), "it has read all")
            assert hub.said(peer, b"checked") == [[b"checked", b""]]
            assert await hub.ask(peer, b"echo", answer=b"echo") == [b"echo"]


async def test_a_slow_reader_gets_what_was_sent_before_the_link_was_closed(address: str) -> None:
    num, heard, lost = 100, list[bytes](), list[str]()
    async with Hub(address) as hub:
        caller = call(address, CONFIG, lambda frames: heard.append(bytes(frames[0])), lost.append)
        caller.send([b"hello"])
        await wait_until_async(lambda: hub.heard, "it is heard")
        for at in range(num):
            assert hub.link.send(hub.heard[0][0], numbered(at, 200_000))
    await wait_until_async(lambda: lost, "the end is noticed")
    assert heard == [numbered(at, 1)[0] for at in range(num)]


async def test_a_slow_reader_that_dies_is_lost_with_the_messages_that_waited_for_it(address: str) -> None:
    with peer_processes(address, 1, 30.0) as (process,):
        async with Hub(address) as hub:
            peer = await hub.meet(process)
            assert hub.link.send(peer, [b"sleep", b"100"])
            for at in range(100):
                assert hub.link.send(peer, numbered(at, 200_000))
            process.kill()
            await wait_until_async(lambda: hub.lost, "its end is noticed")
            assert hub.lost == [peer]
            assert not hub.link.send(peer, [b"echo"])
