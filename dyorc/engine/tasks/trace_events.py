"""Records what the tasks of a recorded request do. Nothing here decides, and nothing here runs for other requests."""

from dyorc.engine.model.futures import Future, Outcome
from dyorc.engine.model.journal import BranchPoint, Segment
from dyorc.engine.model.program_call import Call
from dyorc.engine.model.request_tree import Task
from dyorc.engine.request_trace import FAILED_BY, CallTrace, DecisionTrace, PartTrace, RequestTrace, TraceNote
from dyorc.errors import DyOrcError


def trace_call(story: RequestTrace, call: Call, now_ns: int) -> None:
    """Begins the trace of a call that has just got its number."""
    segment = call.segment
    decision, branch = _place(segment)
    trace = call.trace = CallTrace(
        call.call_id, call.callee.name, now_ns, _sources(call), decision, branch,
        is_guess=not segment.is_certain, is_repeat=call.restores is not None, depth=segment.task.depth,
        reads_streams=bool(call.callee.signature.streams),
    )  # fmt: skip
    story.calls.append(trace)


def trace_inputs(call: Call, trace: CallTrace) -> None:
    """Completes the sources of a call whose inputs are all there."""
    for argument in call.arguments:
        if isinstance(argument.future.producer, Task):
            trace.sources = _sources(call)
            return


def trace_end(story: RequestTrace, trace: CallTrace, error: DyOrcError | None, now_ns: int) -> None:
    """Ends the trace of a call that is done, or has failed."""
    story.end_call(trace, now_ns, "" if error is None else str(error) or type(error).__name__)


def trace_abandoned(trace: CallTrace, now_ns: int, *, is_wrong: bool) -> None:
    """Ends the trace of a call that is no longer needed; with `is_wrong`, because it was a wrong guess."""
    if not trace.ended_ns:
        trace.ended_ns = now_ns
        trace.outcome = "squashed" if is_wrong else "withdrawn"
    elif is_wrong and trace.outcome == "done":
        trace.outcome = "squashed"


def trace_decision(story: RequestTrace, point: BranchPoint, now_ns: int) -> None:
    """Begins the trace of a decision that no path has reached before."""
    decision, branch = _place(point.segment)
    point.number = len(story.decisions)
    depth = point.segment.task.depth
    story.add_decision(DecisionTrace(str(point.decision.site), now_ns, (), decision, branch, depth=depth))


def trace_wait(story: RequestTrace, point: BranchPoint) -> None:
    """Records which calls an open decision waits for, now that they have numbers."""
    story.decisions[point.number].sources = _behind_decision(point)


def trace_immediate_outcome(story: RequestTrace, point: BranchPoint, now_ns: int) -> None:
    """Ends the trace of a decision whose value was at hand, so that it was never open."""
    trace = story.decisions[point.number]
    trace.sources = _behind_decision(point)
    trace.decided_ns = now_ns
    trace.outcome = _shown(point)


def trace_guesses(story: RequestTrace, point: BranchPoint, outcomes: list[Outcome], now_ns: int) -> None:
    """Records which outcomes of an open decision are guessed."""
    shown = {str(outcome): round(point.probabilities[outcome], 3) for outcome in outcomes}
    story.add_guesses(story.decisions[point.number], shown, now_ns)


def trace_outcome(story: RequestTrace, point: BranchPoint, gains_s: dict[Outcome, float], now_ns: int) -> None:
    """Ends the trace of a decision that was open."""
    trace = story.decisions[point.number]
    trace.sources = trace.sources or _behind_decision(point)
    gains_ms = {str(outcome): round(gain_s * 1e3, 3) for outcome, gain_s in gains_s.items()}
    story.end_decision(trace, _shown(point), gains_ms, now_ns)


def trace_part(story: RequestTrace, index: int, now_ns: int) -> None:
    """Records that a part of the answer was sent for the first time."""
    story.add_part(PartTrace(index, now_ns))


def trace_recomputed(story: RequestTrace, future: Future, call: Call, now_ns: int) -> None:
    """Records that a result has been computed again by a call."""
    story.note(TraceNote(now_ns, "recomputed", call.callee.name))
    if isinstance(future.producer, Call) and future.producer.trace is not None:
        future.producer.trace.dropped = ""


def trace_repeat(story: RequestTrace, call: Call, now_ns: int, *, is_rebuilt: bool) -> None:
    """Records why a call is run again: a result of it was lost, or a resident dropped.

    Args:
        is_rebuilt: Whether its program's `rebuild` makes the resident, in place of the call.
    """
    trace, name = call.trace, call.callee.name
    if trace is None or not trace.dropped:
        story.note(TraceNote(now_ns, "lost", name))
        return
    story.note(TraceNote(now_ns, "remade", name, trace.dropped, "rebuild" if is_rebuilt else "call"))


def trace_failure(story: RequestTrace, root: Task, error: DyOrcError, now_ns: int) -> None:
    """Records by which of several calls of one program or workflow a request has failed, from the outside to the inside: the
    pieces of a fan-out have no other names."""
    caller: Task | None = root
    while caller is not None:
        entries = list(caller.entries())
        failed = next((entry for entry in entries if entry.future.error is error), None)
        if failed is None:
            return
        alike = [entry for entry in entries if entry.callee is failed.callee]
        if len(alike) > 1:
            index = alike.index(failed)
            which = f"call {index + 1} of {len(alike)} (index {index})"
            story.note(TraceNote(now_ns, FAILED_BY, failed.callee.name, which))
        caller = failed if isinstance(failed, Task) else None


def _shown(point: BranchPoint) -> str:
    return str(point.error or point.outcome)


def _place(segment: Segment) -> tuple[int, str]:
    """Returns the last decision before a segment, as a number, and its outcome there; -1 before the first."""
    while segment.decision < 0:
        above = segment.task.segment
        if above is None:
            return -1, ""
        segment = above
    return segment.decision, str(segment.outcome)


def _sources(call: Call) -> tuple[int, ...]:
    arguments = call.arguments
    if len(arguments) == 1:
        return _behind(arguments[0].future)
    return tuple(dict.fromkeys([number for argument in arguments for number in _behind(argument.future)]))


def _behind_decision(point: BranchPoint) -> tuple[int, ...]:
    refs = point.decision.refs
    if len(refs) == 1:
        return _behind(refs[0].future)
    return tuple(dict.fromkeys([number for ref in refs for number in _behind(ref.future)]))


def _behind(future: Future) -> tuple[int, ...]:
    """Returns the numbers of the calls that made a value; none yet if it is the result of a workflow that has not ended."""
    producer = future.producer
    if producer is None:
        return ()
    return (producer.call_id,) if isinstance(producer, Call) else _behind_result(producer)


def _behind_result(task: Task) -> tuple[int, ...]:
    numbers: dict[int, None] = {}
    seen: set[Task] = set()
    pending = [task]
    while pending:
        task = pending.pop()
        if task in seen:
            continue
        seen.add(task)
        for argument in task.result:
            producer = argument.future.producer
            if isinstance(producer, Call):
                numbers[producer.call_id] = None
            elif producer is not None:
                pending.append(producer)
    return tuple(numbers)
