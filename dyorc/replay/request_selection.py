"""Which recorded requests a replay is about: those of one workflow, and of some of its versions."""

from collections import Counter
from collections.abc import Collection

from dyorc.telemetry.histories.history import HistoryHead, RequestHistory

NOT_SERVED = "their version is no longer served"


class RequestSelection:
    """Says which recorded requests count, and counts the others.

    Args:
        workflow: Its name.
        versions: Only requests that versions with these names answered; empty: all.
        codes: Only requests that versions with this code answered, by their short digests: a name of a version may come again
            with other code, when a server starts anew. None: with any code.

    Attributes:
        num_of_others: How many were of other workflows.
        skipped: How many did not count, by the reason.
    """

    def __init__(self, workflow: str, versions: Collection[str] = (), codes: Collection[str] | None = None) -> None:
        self._workflow = workflow
        self._versions = frozenset(versions)
        self._codes = None if codes is None else frozenset(codes)
        self.num_of_others = 0
        self.skipped = Counter[str]()

    def wants(self, request: HistoryHead | RequestHistory) -> bool:
        """Returns whether a request counts."""
        if request.workflow != self._workflow:
            self.num_of_others += 1
            return False
        if self._versions and request.version not in self._versions:
            self.skipped[f"they are of version {request.version}"] += 1
            return False
        if self._codes is not None and request.code not in self._codes:
            self.skipped[NOT_SERVED] += 1
            return False
        return True
