"""What an orchestrator is doing now: it stands by, or leads its group. For whoever looks after its process."""

import contextlib
from collections.abc import Generator

from dyorc.errors import NotReadyError
from dyorc.gateway.readiness import require_ready
from dyorc.leadership.leadership import Leadership
from dyorc.leadership.leadership_thread import LeadershipThread
from dyorc.status import StatusBoard
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings, Source


class LeaderRole:
    """Changes twice: from standing by to serving, and back before the process ends.

    Args:
        leadership: The process's lead of its group, won or not.
    """

    def __init__(self, leadership: Leadership | LeadershipThread) -> None:
        self._leadership = leadership
        self._status: StatusBoard | None = None
        self._sources: tuple[Source, ...] = ()

    @contextlib.contextmanager
    def serving(self, status: StatusBoard, *sources: Source) -> Generator[None]:
        """It serves while this is entered.

        Args:
            status: What each program is doing.
            sources: What counts something meanwhile.
        """
        self._status, self._sources = status, sources
        try:
            yield
        finally:
            self._status = None

    def require_ready(self) -> None:
        """Checks that it leads, and that its programs are as wanted.

        Raises:
            NotReadyError: If not; says why.
        """
        if self._status is None:
            raise NotReadyError(f"this orchestrator does not lead group {self._leadership.group!r}; it stands by")
        require_ready(self._status)

    def measure(self, readings: Readings) -> None:
        """Adds what metrics show."""
        group = self._leadership.group
        readings.add(catalogue.LEADS, self._status is not None, group)
        readings.add(catalogue.FENCE, self._leadership.fence, group)
        readings.add(catalogue.LEASE_STORE_DOWN, self._leadership.is_store_away, group)
        for source in self._sources:
            source(readings)
