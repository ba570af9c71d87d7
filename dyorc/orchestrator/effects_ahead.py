"""Batches with effects that must not be had twice, held back until all who asked know of it. For the event loop's thread.

Whoever knows fails its request if this orchestrator is lost; whoever does not asks the next one again.
"""

from collections.abc import Callable, Mapping

from dyorc.engine.actions import DispatchBatch
from dyorc.engine.events import Event, ReplicaLeft, TensorsLost
from dyorc.orchestrator.asker import Asker
from dyorc.orchestrator.fleet import Fleet


class EffectsAhead:
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
        """Tells those who asked for a batch's requests, and dispatches it when all of them know.

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
                self._post(TensorsLost(batch.replica_id, batch.batch_id, ()))

        for asker in concerned.values():
            asker.effect_ahead(batch.requests, go)
        if not concerned:
            go(True)

    def heed(self, event: Event) -> None:
        """Forgets the batches of a replica that has left: the engine has taken them back."""
        if isinstance(event, ReplicaLeft):
            self.forget(event.replica_id)

    def forget(self, replica_id: str) -> None:
        """Forgets the batches of a replica."""
        for batch_id in [one for one, batch in self.held.items() if batch.replica_id == replica_id]:
            del self.held[batch_id]
