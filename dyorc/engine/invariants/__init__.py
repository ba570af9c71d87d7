"""What is true of an engine after every event, one function per promise.

Tests call `check_all` after each `Engine.handle`; a simulator may too. Each check visits everything in flight.
"""

from collections.abc import Callable

from dyorc.engine.engine import Engine
from dyorc.engine.invariants import scheduling, tasks
from dyorc.engine.invariants.in_flight import InvariantError

__all__ = ["CHECKS", "InvariantError", "check_all"]

CHECKS: tuple[Callable[[Engine], None], ...] = (
    scheduling.calls_are_in_one_place,
    scheduling.pending_futures_have_unfinished_calls,
    scheduling.calls_belong_to_requests,
    scheduling.queue_sizes_agree,
    scheduling.batches_are_uniform,
    scheduling.batches_belong_to_replicas,
    scheduling.no_more_replicas_than_wanted,
    scheduling.idle_bookkeeping_agrees,
    scheduling.idle_replicas_leave_no_work,
    scheduling.cores_are_counted,
    scheduling.prefetches_have_timers,
    tasks.nothing_is_left_undone,
    tasks.requests_can_progress,
    tasks.awaited_places_are_known,
    tasks.unread_parts_are_known,
    tasks.paths_follow_branches,
    tasks.certainty_agrees,
    tasks.effects_are_certain,
    tasks.budgets_agree,
    tasks.answered_requests_have_effects,
    tasks.streams_are_in_order,
    tasks.parts_are_in_their_places,
    tasks.untaken_parts_are_kept,
    tasks.leases_agree,
    tasks.batches_read_what_they_were_given,
    tasks.queued_calls_have_their_inputs,
    tasks.restorations_are_under_way,
    tasks.residents_are_counted,
    tasks.residents_are_read_where_they_are,
    tasks.requests_are_bounded,
    scheduling.requests_have_deadlines,
    scheduling.started_batches_have_timers,
)


def check_all(engine: Engine) -> None:
    """Checks every invariant.

    Raises:
        InvariantError: If one does not hold.
    """
    for check in CHECKS:
        check(engine)
