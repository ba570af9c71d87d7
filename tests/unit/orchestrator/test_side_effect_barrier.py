"""A batch waits until gateways know of its effects. If its replica leaves meanwhile, it comes back as one that did not run."""

from collections.abc import Callable, Sequence
from typing import Any, cast
from unittest import mock

from dyorc.engine.actions import DispatchBatch, FormReason
from dyorc.engine.events import BatchUnsent, Event, ReplicaLeft
from dyorc.orchestrator.request_owners import RequestOwner
from dyorc.orchestrator.side_effects import SideEffectBarrier
from tests.workflows import effects

BATCH = DispatchBatch("once-1", 7, effects.once_program, (), (), FormReason.FULL, requests=(1,))


class SlowAsker:
    """Does not say that it knows before it is asked to."""

    go: Callable[[bool], None]

    def confirm_effect(self, requests: Sequence[int], go: Callable[[bool], None]) -> None:
        self.go = go


def test_it_comes_back_before_the_replica_leaves_and_is_not_sent_later() -> None:
    events: list[Event] = []
    fleet, asker = mock.Mock(), SlowAsker()

    def post(event: Event) -> None:
        ahead.observe(event)
        events.append(event)

    ahead = SideEffectBarrier(fleet, post)
    ahead.announce(BATCH, {1: cast(RequestOwner, asker)})
    post(ReplicaLeft("another", "it is gone"))
    left: Any = ReplicaLeft("once-1", "it moves")
    post(left)
    assert events[1:] == [BatchUnsent("once-1", 7), left]
    asker.go(True)
    fleet.dispatch.assert_not_called()
