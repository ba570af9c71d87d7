"""The orchestrator's end of a link, which records what it receives, and peers in processes of their own."""

import contextlib
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dyorc.config import LinkConfig
from dyorc.transport.column_codec import Frame
from dyorc.transport.link import OrchestratorEnd, listen
from dyorc.transport.peer_process import LinkCallbacks, PeerEnding
from tests.deadlines import TIMEOUT_S, wait_until_async

_REPOSITORY = Path(__file__).parents[3]
CONFIG = LinkConfig()
DEAF = LinkConfig(heartbeat_interval_s=2 * TIMEOUT_S, heartbeat_timeout_s=6 * TIMEOUT_S)
"""Heartbeats so rare that whatever a test notices, it did not notice by a missing one."""


class Hub:
    """The orchestrator's end of a link, and everything it has received."""

    def __init__(self, address: str, config: LinkConfig = CONFIG) -> None:
        self.heard: list[tuple[bytes, list[bytes]]] = []
        self.lost: list[bytes] = []
        self.endings: dict[bytes, PeerEnding] = {}
        self.happened: list[str] = []
        callbacks = LinkCallbacks(self._received, lambda: self.happened.append("drained"), self._lost)
        self.link: OrchestratorEnd = listen(address, config, callbacks)

    async def __aenter__(self) -> Self:
        await self.link.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.link.__aexit__(kind, error, trace)

    def _received(self, peer: bytes, frames: Sequence[Frame]) -> None:
        self.heard.append((peer, [bytes(frame) for frame in frames]))
        self.happened.append("received")

    def _lost(self, peer: bytes, ending: PeerEnding) -> None:
        self.lost.append(peer)
        self.endings[peer] = ending
        self.happened.append("lost")

    def said(self, peer: bytes, word: bytes) -> list[list[bytes]]:
        """Returns all messages of a peer that begin with this word."""
        return [frames for one, frames in self.heard if one == peer and frames[0] == word]

    def peers_of(self, pid: int) -> list[bytes]:
        """Returns all connections on which a process has said hello, in order."""
        return list(dict.fromkeys(peer for peer, frames in self.heard if frames == [b"hello", str(pid).encode()]))

    async def meet(self, process: "subprocess.Popen[bytes]") -> bytes:
        """Waits until a process has a connection that is not lost, and returns it."""
        await wait_until_async(lambda: set(self.peers_of(process.pid)) - set(self.lost), "the peer says hello")
        return next(peer for peer in reversed(self.peers_of(process.pid)) if peer not in self.lost)

    async def ask(self, peer: bytes, *frames: Frame, answer: bytes) -> list[bytes]:
        """Sends a message. Returns the first answer of this kind that arrives afterwards."""
        num_before = len(self.said(peer, answer))
        assert self.link.send(peer, frames)
        await wait_until_async(lambda: len(self.said(peer, answer)) > num_before, f"the answer to {bytes(frames[0])!r}")
        return self.said(peer, answer)[num_before]


@contextlib.contextmanager
def peer_processes(address: str, num: int, receive_timeout_s: float = 0.2) -> Generator[list["subprocess.Popen[bytes]"]]:
    """Starts peers. `tests.integration.links.link_process` says what they do."""
    command = [sys.executable, "-m", "tests.integration.links.link_process", address, str(receive_timeout_s)]
    found = [subprocess.Popen(command, stdin=subprocess.PIPE, cwd=_REPOSITORY) for _ in range(num)]
    try:
        yield found
    finally:
        for process in found:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
