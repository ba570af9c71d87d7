"""What is written down about a batch: in its requests' stories, in the statistics, and in what is learned of its program."""

from dyorc.engine.events import BatchDone
from dyorc.engine.model.calls import Call, CallState
from dyorc.engine.scheduling.batches import Batch
from dyorc.engine.statistics import BatchTimes
from dyorc.engine.story import Step, Story

_NS_PER_S = 1_000_000_000


def tell(story: Story, call: Call, batch: Batch, now_ns: int) -> None:
    """Adds to a request's story that one of its calls was sent in a batch."""
    facts: Step = {} if call.bet is None else {"guess": call.bet.describe()}
    story.add(
        now_ns,
        "dispatched",
        call=call.call_id,
        program=call.callee.name,
        batch_size=len(batch.calls),
        num_guesses=sum(1 for each in batch.calls if each.bet is not None),
        reason=batch.reason.value,
        waited_ms=round((now_ns - call.submitted_ns) / 1e6, 3),
        replica=batch.replica.replica_id,
        **facts,
    )


def learn(batch: Batch, execute_s: float, now_ns: int) -> None:
    """Learns from the time a batch took."""
    pool, size = batch.replica.pool, len(batch.calls)
    if batch.expected_ns is not None:
        pool.lateness_ns.add(max(0, now_ns - batch.expected_ns))
    pool.least_latency.observe(size, execute_s)
    pool.latency.observe(size, execute_s)
    pool.last_done_ns = now_ns
    batch.replica.latency.observe(size, execute_s)
    if batch.started_ns == batch.dispatched_ns:
        pool.link_ns.add(now_ns - batch.dispatched_ns - execute_s * _NS_PER_S)
    sample = batch.calls[size // 2]
    if sample.bet is None:
        pool.sojourn_ns.add(now_ns - sample.submitted_ns)


def count(batch: Batch, event: BatchDone, now_ns: int) -> None:
    """Counts a batch that ran: for its program, and for the workflows whose calls were in it."""
    size = len(batch.calls)
    started_ns = batch.started_ns if batch.started_ns is not None else batch.dispatched_ns
    infer_s = event.execute_s if event.infer_s is None else event.infer_s
    times = BatchTimes(size, now_ns - started_ns, event.gather_s, infer_s, event.publish_s)
    waits_ns = [started_ns - call.submitted_ns for call in batch.calls]
    batch.replica.pool.record.batch_done(times, waits_ns, batch.reason.name, now_ns)
    certain = [
        call.standing.record
        for call in batch.calls
        if call.state is CallState.RUNNING and not call.is_guess and call.restores is None
    ]
    queue_ns = sum(waits_ns) if certain else 0
    for record in set(certain):
        number = certain.count(record)
        record.calls_done(times, queue_ns * number // size, number)
