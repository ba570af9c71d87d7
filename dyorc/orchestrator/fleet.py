"""What the orchestrator needs of replicas, wherever they are: in processes that dial in, or in this one."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dyorc.engine.actions import DispatchBatch
from dyorc.engine.events import Event
from dyorc.tensor import BlockId, TensorRef


class Fleet(Protocol):
    """Carries out what the engine wants of replicas, and tells what becomes of them. Decides nothing.

    It lives on the event loop: its methods neither wait nor raise, and what goes wrong is an event. It posts `ReplicaJoined`
    for each replica that is ready and `ReplicaLeft` when one is gone; `BatchDone`, `BatchFailed` or `TensorsLost` for each
    batch, unless its replica left before; `LoadFailed` when a program cannot be loaded.
    """

    def running(self, post: Callable[[Event], None], flush: Callable[[], None]) -> AbstractAsyncContextManager[object]:
        """Serves one orchestrator while it is entered.

        Args:
            post: Takes an event. The engine hears of it when the loop's turn is over.
            flush: Called when nothing more is to come for the moment: the engine hears of all events now.
        """
        ...

    def dispatch(self, action: DispatchBatch) -> None:
        """Runs a batch."""
        ...

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Nobody reads these blocks any more. The orchestrator has freed its own; others may have copies of them."""
        ...

    def stage(self, replica_id: str, tensors: Sequence[TensorRef]) -> None:
        """A replica is going to need tensors of another node, and may fetch them ahead. A fleet on one node has nothing to do."""
        ...

    def give_up(self, replica_id: str, reason: str) -> None:
        """A replica hangs: makes room for another."""
        ...

    def start_over(self) -> None:
        """There is a new engine, which knows of no replica: each that is idle is to be announced again."""
        ...

    def report(self) -> Mapping[str, int]:
        """What it has to tell people."""
        ...
