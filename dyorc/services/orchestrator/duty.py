"""What an orchestrator is doing now: it stands by, or leads its group. For whoever looks after its process."""

from dyorc.errors import NotReadyError
from dyorc.gateway.readiness import require_ready
from dyorc.leadership.leadership import Leadership
from dyorc.status import StatusBoard
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings


class Duty:
    """Changes once, from standing by to leading; after that the process ends.

    Args:
        leadership: The process's lead of its group, won or not.
        status: What each program is doing.
    """

    def __init__(self, leadership: Leadership, status: StatusBoard) -> None:
        self._leadership = leadership
        self._status = status
        self.is_serving = False

    def require_ready(self) -> None:
        """Checks that it leads, and that its programs are as wanted.

        Raises:
            NotReadyError: If not; says why.
        """
        if not self.is_serving:
            raise NotReadyError(f"this orchestrator does not lead group {self._leadership.group!r}; it stands by")
        require_ready(self._status)

    def measure(self, readings: Readings) -> None:
        """Adds what metrics show."""
        group = self._leadership.group
        readings.add(catalogue.LEADS, self.is_serving, group)
        readings.add(catalogue.FENCE, self._leadership.fence, group)
        readings.add(catalogue.LEASE_STORE_DOWN, self._leadership.is_store_away, group)
