"""What the orchestrator needs of replicas, whether they dial in from other processes or live in this one."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dyorc.authoring.program import Program
from dyorc.config import LogsConfig
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import DispatchBatch
from dyorc.engine.events import Event


class Fleet(Protocol):
    """Carries out what the engine decides for replicas, and reports what happens to them. Decides nothing.

    It lives on the event loop: its methods neither wait nor raise, and failures are events. It posts `ReplicaJoined` for each
    replica that is ready and `ReplicaLeft` when one is gone; `BatchDone`, `BatchFailed` or `TensorsLost` for each batch, unless
    its replica left before; `LoadFailed` when a program cannot be loaded.
    """

    def running(self, post: Callable[[Event], None], flush: Callable[[], None]) -> AbstractAsyncContextManager[object]:
        """Serves one orchestrator while it is entered.

        Args:
            post: Takes an event. The engine gets it at the end of the loop's turn.
            flush: Called when no more events follow for now: the engine gets all of them at once.
        """
        ...

    def add(self, program: Program) -> bool:
        """Serves another program, which is on the status board. Returns whether its replicas come by themselves; otherwise
        somebody has to start them."""
        ...

    def remove(self, program: str) -> None:
        """Forgets a program that is no longer wanted, and accepts no replica of it from now on."""
        ...

    def dispatch(self, action: DispatchBatch) -> None:
        """Runs a batch."""
        ...

    def end_turn(self) -> None:
        """Runs what programs in this process have been given: the engine has decided everything in this turn."""
        ...

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Frees blocks that are no longer read. The orchestrator has freed its own; others may have copies of them."""
        ...

    def stage(self, replica_id: str, tensors: Sequence[TensorRef]) -> None:
        """Announces that a replica will need tensors of another node and may fetch them ahead. A fleet on one node ignores it."""
        ...

    def give_up(self, replica_id: str, reason: str) -> None:
        """Replaces a replica that hangs."""
        ...

    def want(self, program: str, num_warm: int, num_parked: int) -> bool:
        """Sets how many replicas of a program should take batches, and how many more should be parked. Saying it again changes
        nothing.

        Replicas load the program until there are enough. To have fewer, tell the engine too (`ReplicasWanted`): it says by `park`
        which are not needed once they hold no batch.

        Returns:
            Whether the program's replicas are this fleet's.
        """
        ...

    def park(self, replica_id: str) -> None:
        """Makes a replica that holds no batch drop its program. Its tensors stay; the engine has forgotten it."""
        ...

    def set_logs(self, config: LogsConfig) -> None:
        """Applies log settings to replicas in other processes, also to replicas that join later."""
        ...

    def start_over(self) -> None:
        """Announces every idle replica again, because a new engine knows none."""
        ...

    def report(self) -> Mapping[str, int]:
        """Returns figures for people."""
        ...
