"""A running server, whichever process runs the programs: where clients reach it, and whether it is ready."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from dyorc.gateway.catalog import Catalog
from dyorc.models.status import StatusBoard
from dyorc.server.garbage_collector import settle_garbage_collector


@dataclass(frozen=True)
class RunningServer:
    """A running server."""

    url: str
    grpc_address: str
    """Empty without gRPC."""
    catalog: Catalog
    status: StatusBoard
    complaints: Callable[[], Awaitable[Mapping[str, str]]]
    """Returns what keeps programs from starting."""

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
