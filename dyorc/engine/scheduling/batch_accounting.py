"""What is recorded of a batch that was sent or came back: traces, statistics, what is learned of its program, lack of memory."""

from typing import Final

from dyorc.engine.actions import ProgramStarved
from dyorc.engine.engine_statistics import BatchTimes
from dyorc.engine.events import BatchDone, BatchFailed
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.request_trace import BatchTrace, span_of_call
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Batch
from dyorc.engine.turn import Turn

_NS_PER_S = 1_000_000_000
_MIN_STARVED = 3
"""A program counts as starved after this many failures for want of memory in a row, of calls that cannot be tried in a smaller
batch."""
_MEMORY_ERRORS = frozenset({"MemoryError", "_ArrayMemoryError", "OutOfMemoryError", "TooLargeError", "NoRoomError"})
"""Types of exceptions: Python's, NumPy's, torch's on devices, ours for results without room."""
_TORCH_ON_CPU = "can't allocate memory"

_RUNNING: Final = CallState.RUNNING


def begin_trace(batch: Batch, recorded: list[Call], now_ns: int) -> None:
    """Begins the trace of a batch, for its calls whose requests are recorded."""
    calls = batch.calls
    num_guesses = sum([call.bet is not None for call in calls])
    requests = tuple([call.context.number for call in calls])
    trace = batch.trace = BatchTrace(
        batch.batch_id, batch.replica.pool.program.name, batch.replica.replica_id, batch.reason.value, len(calls), num_guesses,
        requests, now_ns,
    )  # fmt: skip
    for call in recorded:
        story, call_trace = call.context.story, call.trace
        if story is not None and call_trace is not None:
            if call.bet is not None:
                call_trace.bet = call.bet.describe()
            story.add_dispatch(call_trace, trace)
            if story.span is not None:
                trace.spans = (*trace.spans, span_of_call(story.span, call_trace))


def end_trace(batch: Batch, outcome: str, now_ns: int, done: BatchDone | None = None) -> None:
    """Ends the trace of a batch, if it has one."""
    trace = batch.trace
    if trace is None:
        return
    trace.ended_ns = now_ns
    trace.outcome = outcome
    if done is not None:
        trace.gather_s, trace.publish_s, trace.moves = done.gather_s, done.publish_s, done.moves
        trace.infer_s = done.execute_s if done.infer_s is None else done.infer_s


def note_end(batch: Batch, execute_s: float, now_ns: int) -> None:
    """Notes how late the engine learned that a batch was done, for the next one on its replica, which waited for that."""
    replica = batch.replica
    started_ns = batch.dispatched_ns if batch.started_ns is None else batch.started_ns
    replica.ended_ns, replica.overdue_ns = now_ns, max(0, now_ns - started_ns - int(execute_s * _NS_PER_S))


def trace_start(batch: Batch, now_ns: int) -> None:
    """Traces that a batch has become the first of its replica."""
    if (trace := batch.trace) is not None:
        trace.started_ns = now_ns
        if batch.replica.ended_ns == now_ns:
            trace.overdue_ns = batch.replica.overdue_ns


def learn_from_batch(batch: Batch, execute_s: float, now_ns: int) -> None:
    """Learns from the time a batch took."""
    pool, size = batch.replica.pool, batch.cost
    waits = pool.program.is_streaming or bool(pool.program.signature.streams)  # for its readers, or for parts that it reads
    if batch.expected_ns is not None and not waits:
        pool.lateness_ns.add(max(0, now_ns - batch.expected_ns))
    processor, expected_s = batch.replica.processor, pool.latency.predict(size)
    if processor is not None and expected_s and batch.started_ns is not None:
        processor.learn(batch.started_ns, batch.busy_ns, expected_s, execute_s, now_ns)
    pool.least_latency.observe(size, execute_s)
    pool.latency.observe(size, execute_s)
    if pool.max_cost is not None:
        pool.mean_cost.observe(len(batch.calls), batch.cost)
    pool.last_done_ns = now_ns
    pool.loop_ratio.calls_ended(batch.calls, now_ns)
    batch.replica.latency.observe(size, execute_s)
    if batch.started_ns == batch.dispatched_ns and not waits:
        pool.link_ns.add(now_ns - batch.dispatched_ns - execute_s * _NS_PER_S)
    sample = batch.calls[len(batch.calls) // 2]
    if sample.bet is None:
        pool.sojourn_ns.add(now_ns - sample.submitted_ns)


def count_batch(batch: Batch, event: BatchDone, now_ns: int) -> None:
    """Counts a batch that ran: for its program, and for the workflows whose calls were in it."""
    size = len(batch.calls)
    started_ns = batch.started_ns if batch.started_ns is not None else batch.dispatched_ns
    infer_s = event.execute_s if event.infer_s is None else event.infer_s
    is_reading = bool(batch.replica.pool.program.signature.streams)
    times = BatchTimes(size, now_ns - started_ns, event.gather_s, infer_s, event.publish_s, is_reading=is_reading)
    waits_ns = [started_ns - call.submitted_ns for call in batch.calls]
    own = batch.replica.pool.record
    own.count_batch(times, waits_ns, batch.reason.name, now_ns)
    if batch.replica.pool.max_cost is not None:
        own.cost += batch.cost
    for move in event.moves:
        own.add_transfer(move.tier, move.num_bytes, move.took_s)
    certain = [
        call.context.record for call in batch.calls if call.state is _RUNNING and not call.is_guess and call.restores is None
    ]
    queue_ns = sum(waits_ns) if certain else 0
    for record in set(certain):
        number = certain.count(record)
        record.count_calls(times, queue_ns * number // size, number)


def count_memory_failure(turn: Turn, pool: ReplicaPool, batch: Batch, event: BatchFailed) -> None:
    """Counts a batch that failed for want of memory, and reports its program if no batch has had enough lately."""
    is_last = len(batch.calls) == 1 or not pool.program.options.is_repeatable
    if not is_last or not (event.is_capacity or event.error_type in _MEMORY_ERRORS or _TORCH_ON_CPU in event.message):
        return
    pool.num_starved += 1
    if pool.num_starved == _MIN_STARVED:
        turn.actions.append(ProgramStarved(pool.program.name, f"{event.error_type}: {event.message}"))


def end_starvation(turn: Turn, pool: ReplicaPool) -> None:
    """Resets the count of failures for want of memory, because a batch ran."""
    if pool.num_starved >= _MIN_STARVED:
        turn.actions.append(ProgramStarved(pool.program.name, ""))
    pool.num_starved = 0
