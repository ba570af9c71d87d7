"""The log's lines about effects that failed, or were lost, after their requests were answered. For the event loop's thread."""

import time
from collections.abc import Callable, Mapping

import structlog

from dyorc.engine.actions import EffectFailed

_log = structlog.get_logger("dyorc.orchestrator")

_PERIOD_S = 10.0
"""One line in this time for failures of the same kind: a program that always fails would fill the disk."""


class EffectLog:
    """Writes them.

    Args:
        clock_s: A monotonic clock.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._written: dict[tuple[str, str, str], tuple[float, int]] = {}

    def failed(self, failure: EffectFailed) -> None:
        """Logs an effect that has failed, or counts it for the next line if one of its kind was logged a moment ago."""
        kind = failure.workflow, failure.callee, failure.error.code
        now_s = self._clock_s()
        last_s, num_more = self._written.get(kind, (-_PERIOD_S, 0))
        if now_s - last_s < _PERIOD_S:
            self._written[kind] = last_s, num_more + 1
            return
        self._written[kind] = now_s, 0
        more = {"num_more": num_more} if num_more else {}
        error = str(failure.error)
        _log.error("effect_failed", workflow=kind[0], program=kind[1], code=kind[2], error=error, **more)

    def lost(self, pending: Mapping[str, int]) -> None:
        """Logs effects of answered requests, by workflow, that are given up."""
        if pending:
            _log.error("effects_lost", num_effects=sum(pending.values()), workflows=sorted(pending))
