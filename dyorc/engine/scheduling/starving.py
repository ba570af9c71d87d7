"""Notices programs whose calls all fail for want of memory: a replica takes batches, and none of them has results."""

from dyorc.engine.actions import ProgramStarved
from dyorc.engine.events import BatchFailed
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Batch
from dyorc.engine.turn import Turn

_MIN_FAILURES = 3
"""One after the other, of calls that could not be tried in a smaller batch."""
_ERRORS = frozenset({"MemoryError", "_ArrayMemoryError", "OutOfMemoryError", "TooLargeError", "NoRoomError"})
"""Types of exceptions: Python's, NumPy's, torch's on devices, ours for results without room."""
_TORCH_ON_CPU = "can't allocate memory"


def note_failure(turn: Turn, pool: ReplicaPool, batch: Batch, event: BatchFailed) -> None:
    """Notes a batch that failed, and says so if the program has not had memory for anything lately."""
    is_last = len(batch.calls) == 1 or not pool.program.options.is_repeatable
    if not is_last or not (event.is_capacity or event.error_type in _ERRORS or _TORCH_ON_CPU in event.message):
        return
    pool.num_starved += 1
    if pool.num_starved == _MIN_FAILURES:
        turn.actions.append(ProgramStarved(pool.program.name, f"{event.error_type}: {event.message}"))


def note_success(turn: Turn, pool: ReplicaPool) -> None:
    """Notes that a batch ran, after some had failed for want of memory."""
    if pool.num_starved >= _MIN_FAILURES:
        turn.actions.append(ProgramStarved(pool.program.name, ""))
    pool.num_starved = 0
