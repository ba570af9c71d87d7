"""A short storm, eight kills under load (``make chaos`` has two hundred), and what earlier storms have found."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from dyorc.answering.local_answers import own_arrays
from dyorc.config import LinkConfig, TransportConfig
from dyorc.core.arrays import Array
from dyorc.transport.column_codec import StoredColumn
from dyorc.transport.inbox import Inbox
from dyorc.transport.peer_process import LinkCallbacks
from dyorc.transport.tensor_path import TensorExchange
from dyorc.transport.zmq_link import RouterLink
from tests.asking import submission
from tests.chaos import storm
from tests.deadlines import wait_until, wait_until_async
from tests.integration.stack import running
from tests.leaks import no_leaks
from tests.shared_folders import shared_folder
from tests.workflows import checksummed

_DEALER = """
import sys
from dyorc.config import LinkConfig
from dyorc.transport.zmq_link import DealerLink
from tests.shared_folders import shared_folder
sys.stdin.readline()
link = DealerLink(sys.argv[1], LinkConfig(), 1)
link.send([b"here"])
sys.stdin.read()
"""


def test_nothing_is_wrong_lost_or_left_when_anything_is_killed_at_any_moment() -> None:
    with no_leaks():
        figures, wrong = storm.run(num_kills=8, seed=4, num_clients=4, check_every=4, arena_mib=64)
    print(f"\n{figures}")
    assert wrong == []
    assert figures["wrong"] == 0
    assert sum(figures["kills"].values()) == 8
    assert figures["answers"] > 8 * 20


def test_writes_to_an_input_do_not_show_in_another_input_of_the_same_tensor() -> None:
    with shared_folder() as folder:
        config = TransportConfig(arena_bytes=2**20, arena_folder=folder, inline_limit_bytes=16)
        with TensorExchange("replica", "here", config) as exchange:
            (header,), _ = exchange.outbox.write([np.arange(100, dtype=np.int32).reshape(1, 100)])
            assert isinstance(header, StoredColumn)
            routes = exchange.routes()
            inbox = Inbox(routes)
            first, second = inbox.read([header, header], [], [exchange.holder])
            first[0][...] = -1
            np.testing.assert_array_equal(second[0], np.arange(100))
            inbox.done()
            del first, second
            routes.close()


def _dealer(address: str) -> "subprocess.Popen[bytes]":
    """Runs a process that connects when it gets a line."""
    return subprocess.Popen([sys.executable, "-c", _DEALER, address], stdin=subprocess.PIPE, cwd=Path(__file__).parents[2])


def _connect(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _is_closed(descriptor: int) -> bool:
    return not os.path.exists(f"/proc/self/fd/{descriptor}")


async def _replace_a_connection(folder: str) -> None:
    """Ends a connection while the loop is busy; another one gets its descriptor."""
    here: list[bytes] = []
    lost: list[bytes] = []
    address = f"ipc://{folder}/link"
    callbacks = LinkCallbacks(lambda peer, frames: here.append(peer), lambda: None, lambda peer, _: lost.append(peer))
    link = RouterLink(address, LinkConfig(), callbacks)
    async with link:
        socket = link._socket  # pyright: ignore[reportPrivateUsage]
        first, second = _dealer(address), _dealer(address)
        try:
            _connect(first)
            await wait_until_async(lambda: here, "the first is heard")
            (descriptor,) = link._peers_by_fd  # pyright: ignore[reportPrivateUsage]
            # From here on the loop gets no turn, as if a large answer were being written.
            first.kill()
            wait_until(lambda: _is_closed(descriptor), "its connection is closed")
            _connect(second)
            wait_until(lambda: socket.poll(0), "the second has spoken")
            assert not _is_closed(descriptor)
            await wait_until_async(lambda: len(here) == 2 and lost, "both are noticed")
            assert lost == here[:1]
            second.kill()
            await wait_until_async(lambda: len(lost) == 2, "the end of the second is noticed")
            assert lost == here
        finally:
            _end(first)
            _end(second)


def test_a_connection_that_reuses_a_descriptor_is_not_taken_for_the_old_one() -> None:
    with tempfile.TemporaryDirectory(prefix="dyorc-test-") as folder:
        asyncio.run(_replace_a_connection(folder))


async def _take_an_answer_away() -> None:
    """Makes the holder of an answer, given up and back again, reuse its memory before the answer has been read."""
    async with running([checksummed.made]) as stack:
        arenas = [worker.exchange.arena for worker in stack.workers.values()]
        num_takes = 0

        def take(arrays: list[Array]) -> list[Array]:
            nonlocal num_takes
            num_takes += 1
            if num_takes == 1:
                for arena in arenas:
                    arena.free_all()
                    block = arena.allocate(2**22)
                    assert block is not None
                    np.frombuffer(block.memory, np.uint8)[:] = 7
                    arena.free(block.block_id)
            return own_arrays(arrays)

        (words,) = await stack.orchestrator.infer(submission(checksummed.made, (np.array(5),), (50_001,)), take=take)
        np.testing.assert_array_equal(words, checksummed.expected_words(5, 50_001))
        assert num_takes == 2


def test_an_answer_overwritten_while_it_was_read_is_not_sent() -> None:
    asyncio.run(_take_an_answer_away())
