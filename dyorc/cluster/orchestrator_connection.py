"""A gateway's connection to one orchestrator, from the greeting until one of the two leaves."""

import asyncio
import time
from collections.abc import Callable, Sequence

from dyorc.cluster.cluster_messages import (
    FromGateway,
    FromOrchestrator,
    GatewayHello,
    Refused,
    Welcome,
    decode_from_orchestrator,
    encode,
)
from dyorc.cluster.packing import next_number_range
from dyorc.config import LinkConfig
from dyorc.errors import TransportError
from dyorc.leader_election.leader import Leader
from dyorc.transport.column_codec import Frame
from dyorc.transport.link import CallerEnd, call
from dyorc.transport.tiers import TensorHolder
from dyorc.transport.zmq_security import ClusterKeys

_WELCOME_S = 3.0


class OrchestratorConnection:
    """A connection to a leader, used once.

    Args:
        holder: Where this gateway's inputs are.
        received: Called with each message after the welcome, and its frames.

    Attributes:
        is_lost: Set once the other end is gone, or has sent something other than a message.
        reason: Why it is lost.
        shift_ns: Added to the orchestrator's times, it gives times on this machine's clock.
        numbers_from: Added to the orchestrator's request numbers, it makes them unique in this process.
    """

    def __init__(
        self, leader: Leader, holder: TensorHolder, received: Callable[[FromOrchestrator, Sequence[Frame]], None]
    ) -> None:
        self._leader = leader
        self._holder = holder
        self._received = received
        self._welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._link: CallerEnd | None = None
        self.is_lost = asyncio.Event()
        self.reason = ""
        self.shift_ns = 0
        self.numbers_from = next_number_range()

    async def open(self, link: LinkConfig, keys: ClusterKeys | None, fence: int) -> Welcome:
        """Dials in.

        Args:
            fence: The highest that this gateway knows.

        Raises:
            TransportError: If no process listens there, or it refuses this gateway.
            TimeoutError: If it does not answer.
        """
        greeted_ns = time.monotonic_ns()
        self._link = call(self._leader.address, link, self._take, self._end, keys=keys)
        self.send(GatewayHello(self._holder.holder_id, self._holder, fence))
        async with asyncio.timeout(_WELCOME_S):
            welcome = await self._welcome
        if self._leader.node != self._holder.node:  # on one machine there is one clock
            self.shift_ns = (greeted_ns + time.monotonic_ns()) // 2 - welcome.clock_ns
        return welcome

    def send(self, message: FromGateway, frames: Sequence[Frame] = ()) -> None:
        """Sends a message; drops it without a connection."""
        if self._link is not None:
            self._link.send([encode(message), *frames])

    def close(self) -> None:
        """Hangs up; nothing more is received."""
        if self._link is not None:
            self._link.close()

    def _take(self, frames: Sequence[Frame]) -> None:
        try:
            message = decode_from_orchestrator(frames[0])
            if isinstance(message, Refused):
                raise TransportError(f"this gateway is refused: {message.reason}")
            if not isinstance(message, Welcome):
                self._received(message, frames[1:])
            elif not self._welcome.done():
                self._welcome.set_result(message)
        except TransportError as error:
            self.close()
            self._end(str(error))

    def _end(self, reason: str) -> None:
        self.reason = reason
        if not self._welcome.done():
            self._welcome.set_exception(TransportError(reason))
        self.is_lost.set()
