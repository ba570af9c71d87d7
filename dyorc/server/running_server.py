"""A running server, whichever process runs the programs: its addresses, and whether it is ready."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from dyorc.gateway.catalog import Catalog
from dyorc.models.status import StatusBoard
from dyorc.system.garbage_collector import settle_garbage_collector


async def no_complaints() -> Mapping[str, str]:
    """Returns no complaints: for programs in this process, or behind other orchestrators."""
    return {}


@dataclass(frozen=True)
class RunningServer:
    """A running server.

    Attributes:
        grpc_address: Empty without gRPC.
        complaints: Returns what keeps programs from starting, by program.
    """

    url: str
    grpc_address: str
    catalog: Catalog
    status: StatusBoard
    complaints: Callable[[], Awaitable[Mapping[str, str]]] = no_complaints

    def wait_until_ready(self) -> AsyncIterator[Mapping[str, str]]:
        """Yields complaints until all programs are ready."""
        return until_ready(self.status, self.complaints)


async def until_ready(
    status: StatusBoard, complaints: Callable[[], Awaitable[Mapping[str, str]]], changed_s: float = 0.25
) -> AsyncIterator[Mapping[str, str]]:
    """Yields complaints at every change, and every `changed_s` seconds, until all programs are ready."""
    latest: Mapping[str, str] = {}
    num_rounds = 0
    while not status.is_ready:
        await status.wait_for_change(changed_s)
        num_rounds += 1
        if num_rounds % 20 == 0:
            latest = await complaints()
        yield latest
    settle_garbage_collector()
