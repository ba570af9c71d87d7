"""Mistakes made on purpose in what runs calls: on replicas, in parts, and with tensors and residents that lie there."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from dyorc.answering import part_stream
from dyorc.authoring import program
from dyorc.cluster import remote_backend
from dyorc.engine import block_leases
from dyorc.engine.actions import AnswerPart
from dyorc.engine.scheduling import parking, retrying
from dyorc.engine.tasks import part_taking, request_lifecycle
from dyorc.replica import leader_link, ongoing_batches, resident_table
from dyorc.transport import tensor_path

REPLICA_MUTANTS: dict[str, Callable[[], None]] = {}
"""By name, what makes the mistake in this process."""


def _mutant(make: Callable[[], None]) -> Callable[[], None]:
    REPLICA_MUTANTS[make.__name__] = make
    return make


@_mutant
def lost_calls() -> None:
    """The calls of a lost replica are not repeated."""
    policy: Any = retrying.RetryPolicy
    policy.replica_lost = lambda self, batch, event, num_running: None


@_mutant
def repeated_effect() -> None:
    """A call with an effect is repeated after its replica was lost."""
    options: Any = program.ProgramOptions
    options.is_repeatable = property(lambda self: True)


@_mutant
def hasty_parking() -> None:
    """A replica is parked, and forgotten, while it runs a batch."""
    parks: Any = parking.Parking

    def drain(self: Any, replica: Any) -> None:
        replica.pool.drain(replica)
        self.park(replica)

    parks._drain = drain


@_mutant
def kept_streams() -> None:
    """A replica goes on with the streams of its last leader, under the next."""
    batches: Any = ongoing_batches.OngoingBatches
    batches.abandon_all = lambda self, free: None


@_mutant
def kept_tensors() -> None:
    """A replica keeps the tensors that its last leader knew."""
    exchange: Any = tensor_path.TensorExchange
    exchange.free_all = lambda self: None


@_mutant
def loyal_replica() -> None:
    """A replica stays with a leader whose fence is lower than one it knows."""
    link: Any = leader_link.LeaderLink

    def trust(self: Any, fence: int) -> bool:
        self.is_trusted = True
        return True

    link.check_fence = trust
    link.redial_leader = lambda self: False


@_mutant
def repeated_part() -> None:
    """A part that a call yields again, on another replica, is taken for a new one."""
    taker: Any = part_taking.PartTaker
    take = taker.take

    def take_again(self: Any, came: Any) -> bool:
        parts = came.call.parts
        return take(self, came if parts is None else replace(came, index=max(came.index, parts.num_parts)))

    taker.take = take_again


@_mutant
def part_sent_again() -> None:
    """A gateway passes parts on again that the next leader sends once more."""
    stream: Any = part_stream.PartStream
    add = stream.add

    def add_again(self: Any, part: Any) -> None:
        is_old = part.index < self._num_taken
        add(self, part_stream.ReadPart(self._num_taken + len(self._parts), part.tensors, part.arrays) if is_old else part)

    stream.add = add_again
    backend: Any = remote_backend.RemoteBackend
    take = backend._take_part

    def take_again(self: Any, request_id: int, message: Any, frames: Any) -> None:
        pending = self._pending.get(request_id)
        if pending is None or pending.in_flight.stream is None or message.index >= pending.in_flight.stream.num_taken:
            take(self, request_id, message, frames)
        else:
            refs = self.tensors.unpack(message.columns, frames, message.holders)
            pending.parts.add(message.index)
            self._answers.part(AnswerPart(request_id, message.index, refs))

    backend._take_part = take_again


@_mutant
def lost_end() -> None:
    """The end of a stream does not reach those who read it."""
    taker: Any = part_taking.PartTaker
    end = taker.end
    taker.end = lambda self, parts, error: None if error is None else end(self, parts, error)


@_mutant
def forgotten_lease() -> None:
    """The leases of a request that has ended are not released."""
    leases: Any = block_leases.BlockLeases
    leases.unpin_all = lambda self, pinned: pinned.clear()


@_mutant
def leases_left_behind() -> None:
    """Leases on the inputs of a gateway are forgotten when its connection breaks, though batches still read them."""
    leases: Any = block_leases.BlockLeases

    def holder_left(self: Any, holder: str) -> bool:
        held = real(self, holder)
        self.absent_counts = {block: count for block, count in self.absent_counts.items() if block[0] != holder}
        return held

    real, leases.holder_left = leases.holder_left, holder_left


@_mutant
def effects_of_lost_answers() -> None:
    """Effects happen though nobody has the answer before them, so that the request is sent again, with its effects."""
    lifecycle: Any = request_lifecycle.RequestLifecycle
    lifecycle._abandon_effects = lambda self, request, root: None


@_mutant
def kept_residents() -> None:
    """A process keeps residents that nobody needs."""
    table: Any = resident_table.ResidentTable
    table.release = lambda self, numbers: None
