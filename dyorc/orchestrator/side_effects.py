"""Side effects that must not be repeated: batches wait until every owner of their requests knows, and lost effects are logged.

If this orchestrator dies, gateways that were notified fail the request; the others submit it again. For the event loop's thread.
"""

import time
from collections.abc import Callable, Mapping

import structlog

from dyorc.engine.actions import DispatchBatch, EffectFailed
from dyorc.engine.events import BatchUnsent, Event, ReplicaLeft
from dyorc.engine.tallies import EffectsGivenUp
from dyorc.orchestrator.fleet import Fleet
from dyorc.orchestrator.request_owners import RequestOwner

_log = structlog.get_logger("dyorc.orchestrator")

_PERIOD_S = 10.0
"""One line in this time for failures of the same kind: a program that always fails would fill the disk."""


class SideEffectBarrier:
    """Holds such batches until the owners of their requests have confirmed them.

    Args:
        post: Takes an event for the engine.

    Attributes:
        held: The waiting batches, by id.
    """

    def __init__(self, fleet: Fleet, post: Callable[[Event], None]) -> None:
        self._fleet = fleet
        self._post = post
        self.held: dict[int, DispatchBatch] = {}

    def announce(self, batch: DispatchBatch, owners: Mapping[int, RequestOwner]) -> None:
        """Notifies the owners of a batch's requests, and dispatches it when all have confirmed.

        If one of them is gone, the engine gets the batch back as one that did not run.
        """
        concerned = {id(owners[number]): owners[number] for number in batch.requests if number in owners}
        num_left = len(concerned)
        self.held[batch.batch_id] = batch

        def go(is_known: bool) -> None:
            nonlocal num_left
            num_left -= 1
            if batch.batch_id not in self.held or (is_known and num_left > 0):
                return
            del self.held[batch.batch_id]
            if is_known:
                self._fleet.dispatch(batch)
                self._fleet.end_turn()
            else:
                self._post(BatchUnsent(batch.replica_id, batch.batch_id))

        for owner in concerned.values():
            owner.confirm_effect(batch.requests, go)
        if not concerned:
            go(True)

    def observe(self, event: Event) -> None:
        """Returns the batches of a replica that has left to the engine, which must learn first that they had no effects.

        A program of a cell moves, and so leaves, while for the engine the batch is still there.
        """
        if isinstance(event, ReplicaLeft):
            for batch in self.forget(event.replica_id):
                self._post(BatchUnsent(batch.replica_id, batch.batch_id))

    def forget(self, replica_id: str) -> list[DispatchBatch]:
        """Forgets the batches of a replica, and returns them."""
        batches = [batch for batch in self.held.values() if batch.replica_id == replica_id]
        for batch in batches:
            del self.held[batch.batch_id]
        return batches


class EffectLog:
    """Logs effects that failed, or were lost, after their requests were answered.

    Args:
        clock_s: A monotonic clock.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._written: dict[tuple[str, str, str], tuple[float, int]] = {}

    def log_failed(self, failure: EffectFailed) -> None:
        """Logs a failed effect, or counts it for the next line if one of its kind was logged a moment ago."""
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

    def log_given_up(self, effects: Mapping[str, EffectsGivenUp]) -> None:
        """Logs how many effects of answered requests are given up, by workflow."""
        begun = {name: given_up.num_begun for name, given_up in effects.items() if given_up.num_begun}
        not_begun = {name: given_up.num_not_begun for name, given_up in effects.items() if given_up.num_not_begun}
        for event, numbers in (("effects_lost", begun), ("effects_not_begun", not_begun)):
            if numbers:
                _log.error(event, num_effects=sum(numbers.values()), workflows=sorted(numbers))
