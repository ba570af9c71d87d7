"""Batches with effects that must not be had twice, held back until all who asked know of it. For the event loop's thread.

If this orchestrator dies, gateways that were notified fail the request; the others submit it again.
"""

from collections.abc import Callable, Mapping

from dyorc.engine.actions import DispatchBatch
from dyorc.engine.events import BatchUnsent, Event, ReplicaLeft
from dyorc.orchestrator.askers import Asker
from dyorc.orchestrator.fleet import Fleet


class SideEffectBarrier:
    """Dispatches such batches once they are known of.

    Args:
        post: Takes an event for the engine.

    Attributes:
        held: Those that wait, by their ids.
    """

    def __init__(self, fleet: Fleet, post: Callable[[Event], None]) -> None:
        self._fleet = fleet
        self._post = post
        self.held: dict[int, DispatchBatch] = {}

    def announce(self, batch: DispatchBatch, askers: Mapping[int, Asker]) -> None:
        """Notifies the askers of a batch's requests, and dispatches it when all have confirmed.

        If one of them is gone, the engine gets the batch back as one that did not run.
        """
        concerned = {id(askers[number]): askers[number] for number in batch.requests if number in askers}
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

        for asker in concerned.values():
            asker.confirm_effect(batch.requests, go)
        if not concerned:
            go(True)

    def heed(self, event: Event) -> None:
        """Gives back the batches of a replica that has left, before the engine hears of that: they have not had their effects.

        A program of a cell moves, and so leaves, while the engine believes that the batch is there.
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
