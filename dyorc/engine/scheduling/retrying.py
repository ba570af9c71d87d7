"""What happens to calls whose batch did not end well: they are queued again, wait for lost inputs, or fail.

Guesses do not run again before they are certain, and never together with certain calls: those must not fail with them.
"""

from collections.abc import Iterator

from dyorc.engine.leases import Leases
from dyorc.engine.model.calls import Call, CallState
from dyorc.engine.scheduling.batches import Batch
from dyorc.engine.scheduling.pools import Pool
from dyorc.engine.turn import Deferred, Failed, Turn, Unready
from dyorc.errors import CapacityError, DyOrcError, EffectLostError, ProgramError, ReplicaLostError


def fail(turn: Turn, pool: Pool, call: Call, error: DyOrcError) -> None:
    """Counts a call that cannot run, and tells its task."""
    pool.record.failed(turn.now_ns - call.submitted_ns, turn.now_ns)
    turn.ended.append(Failed(call, error))


class Retrying:
    """Decides how each call of a failed batch goes on.

    Args:
        max_attempts: How often a call may be on a replica that dies, or not get its inputs though they seem to be there.
    """

    def __init__(self, turn: Turn, leases: Leases, max_attempts: int) -> None:
        self._turn = turn
        self._leases = leases
        self._max_attempts = max_attempts

    def lacks_inputs(self, call: Call) -> bool:
        """Whether any input of a call was lost."""
        return not self._leases.are_there(call.blocks)

    def replica_lost(self, batch: Batch, reason: str, *, was_running: bool) -> None:
        """The replica of a batch is gone.

        Only a batch that was running can have been the cause. If a call has been in such a batch before, it is tried alone,
        so that an input that kills its replica does so in no one else's company.
        """
        pool = batch.replica.pool
        name = pool.program.name
        for call in batch.calls:
            call.num_attempts += was_running
        for call in self._certain(batch):
            call.order = call.standing.order  # it may have been a guess when it was sent, with another order
            if not pool.program.options.is_repeatable:
                text = f"the replica of program {name!r} was lost ({reason}); the program is not declared idempotent, "
                fail(self._turn, pool, call, EffectLostError(f"{text}so it is not run again"))
            elif call.num_attempts >= self._max_attempts:
                text = f"{call.num_attempts} replicas of program {name!r} were lost while they ran this call ({reason})"
                fail(self._turn, pool, call, ReplicaLostError(text))
            elif self.lacks_inputs(call):
                self._turn.ended.append(Unready(call))
            elif call.num_attempts > 1:
                pool.queue.add_retry([call])
            else:
                pool.queue.add(call)

    def inputs_lost(self, batch: Batch) -> None:
        """A batch did not run because its inputs could not be read. Calls whose inputs are lost wait until they are restored. If
        nothing is known to be lost, the calls are tried again, a few times."""
        pool = batch.replica.pool
        is_unknown = not any(self.lacks_inputs(call) for call in batch.calls)
        for call in batch.calls:
            if call.state is not CallState.RUNNING:
                continue
            call.num_losses += is_unknown
            if call.num_losses >= self._max_attempts and not call.is_guess:
                text = f"the inputs of a call of program {pool.program.name!r} could not be had in {call.num_losses} attempts"
                fail(self._turn, pool, call, ReplicaLostError(text))
            else:
                self._turn.ended.append(Unready(call))

    def no_memory(self, batch: Batch, error: CapacityError) -> None:
        """There was no memory for the results of a batch. It is halved, since smaller ones need less, and tried again only a few
        times: its replica waits for room each time and does nothing else."""
        for call in batch.calls:
            call.num_losses += 1
        if max(call.num_losses for call in batch.calls) < self._max_attempts:
            self._try_smaller(batch, error)
        else:
            self._fail_all(batch, error)

    def program_failed(self, batch: Batch, error: ProgramError) -> None:
        """A program raised: a batch of one fails; a larger one is halved and tried again, so that one bad input fails alone."""
        self._try_smaller(batch, error)

    def _try_smaller(self, batch: Batch, error: DyOrcError) -> None:
        pool = batch.replica.pool
        if len(batch.calls) == 1 or not pool.program.options.is_repeatable:
            self._fail_all(batch, error)
            return
        calls = list(self._certain(batch))  # also if one is left: the failing call may be one that nobody needs any more
        middle = len(calls) // 2
        for part in (calls[:middle], calls[middle:]):
            self._retry(part, pool)

    def _fail_all(self, batch: Batch, error: DyOrcError) -> None:
        for call in self._certain(batch):
            fail(self._turn, batch.replica.pool, call, error)

    def _retry(self, calls: list[Call], pool: Pool) -> None:
        """Queues calls together again, except those whose inputs were lost meanwhile."""
        part = [call for call in calls if not self.lacks_inputs(call)]
        self._turn.ended.extend([Unready(call) for call in calls if call not in part])
        if part:
            pool.queue.add_retry(part)

    def _certain(self, batch: Batch) -> Iterator[Call]:
        """Yields the calls of a batch that are certain, and defers the guesses."""
        for call in batch.calls:
            if call.state is not CallState.RUNNING:
                continue
            if call.is_guess:
                self._turn.ended.append(Deferred(call))
            else:
                yield call
