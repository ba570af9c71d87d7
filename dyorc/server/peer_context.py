"""A process's place among others that serve the same on the same ports."""

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dyorc.config import GatewayConfig
from dyorc.gateway.peer_processes import PeerProcesses
from dyorc.gateway.service import InferenceService
from dyorc.system.ports import bind

if TYPE_CHECKING:
    from dyorc.cells.batches import CrashNotes

_LOOK_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerContext:
    """A process among others that serve the same on the same ports.

    Attributes:
        siblings: The other processes.
        num_cells: How many processes there are in all.
        notes: Notes what runs, for others to read if this process crashes.
        listener: An inherited socket that already listens, in place of one that shares the port.
        listens_when_ready: Whether to listen only once the programs are ready: others serve meanwhile.
    """

    siblings: PeerProcesses
    num_cells: int = 1
    notes: "CrashNotes | None" = None
    listener: socket.socket | None = None
    listens_when_ready: bool = False

    async def join(self, service: InferenceService, config: GatewayConfig) -> socket.socket:
        """Takes over what the other processes know, and returns a socket for listening."""
        service.server_view.restore()
        status = service.backend.status
        while self.listens_when_ready and not status.is_ready and not status.is_failing:
            await status.wait_for_change(_LOOK_AGAIN_S)
        return self.listener or bind(config.host, config.port, is_shared=True)
