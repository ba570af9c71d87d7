"""The parts that workflows yield: sent in order, once they rest on no guess and their tensors are there.

A streaming workflow yields; each yield stands in its journal like a call. The *front* of a stream is where its next part will
stand: it moves on along decisions that were taken and never passes an open one, so no guess is ever sent.

    yielded on a guess ── commit ──> certain ── earlier parts sent, tensors ready ──> sent ── PartTaken ──> taken
            └── squash: vanishes         └── tensors failed: the stream fails           └── lost: made again, sent again

The parts of a request's own workflow are sent to its client. Those of a workflow that another one called go into their places
(`dyorc.engine.model.part_list`), where they may be read; if that caller is a guess itself, only a guess reads them.

Back-pressure: a run that yields part i waits while i is `max_untaken_parts` or more ahead of the parts taken, or of the furthest
reader. All parts before it are on their way out, so taking them resumes it, and nothing is polled.

The end of a request's workflow, or its error, waits until every part before it was taken: so tensors lost before they were read
can be made again, and a client sees all parts that came before an error.
"""

from collections.abc import Sequence

from dyorc.core.tensor import BlockId, blocks_of
from dyorc.engine.actions import AnswerPart
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import PartTaken
from dyorc.engine.model.futures import PENDING, Argument
from dyorc.engine.model.journal import StreamPart
from dyorc.engine.model.part_list import PartList
from dyorc.engine.model.request_tree import Request, StreamProgress, Task
from dyorc.engine.tasks.early_release import EarlyRelease
from dyorc.engine.tasks.execution_paths import ExecutionPath
from dyorc.engine.tasks.part_taking import PartTaker
from dyorc.engine.tasks.task_endings import TaskEndings
from dyorc.engine.tasks.tensor_needs import TensorNeeds
from dyorc.engine.tasks.trace_events import trace_part
from dyorc.errors import DyOrcError, ReplicaLostError, WorkflowError, WorkflowLimitError


class PartSender:
    """Passes on the parts of all tasks."""

    def __init__(
        self, context: EngineContext, needs: TensorNeeds, release: EarlyRelease, endings: TaskEndings, places: PartTaker
    ) -> None:
        self._config = context.config
        self._turn = context.turn
        self._leases = context.leases
        self._needs = needs
        self._release = release
        self._endings = endings
        self._places = places

    # From the workflow

    def make_part(self, path: ExecutionPath, arguments: tuple[Argument, ...]) -> StreamPart | None:
        """Returns a part that is new to a journal, to be sent once the run waits; None if the run has to wait until earlier parts
        were taken.

        Raises:
            WorkflowLimitError: If there are already as many as a request may make calls.
        """
        segment, index = path.segment, path.num_parts
        task = segment.task
        if index >= self._config.max_calls_per_request:
            limit = self._config.max_calls_per_request
            raise WorkflowLimitError(f"the request yielded more than {limit} parts (engine.max_calls_per_request)")
        if not self._has_room(task, index):
            return None
        return StreamPart(segment, index, arguments)

    def _has_room(self, task: Task, index: int) -> bool:
        stream, parts = task.stream, task.parts
        if parts is not None:
            return parts.is_unbounded or index - parts.num_read < self._config.max_untaken_parts
        return stream is not None and index - stream.num_taken < self._config.max_untaken_parts

    def end_stream(self, task: Task, error: DyOrcError | None) -> None:
        """Ends a stream, because its workflow has ended, with or without an error; its last parts may still have to be sent."""
        stream = task.stream
        if stream is None or stream.is_ended:
            return
        stream.is_ended = True
        stream.error = error
        self._endings.finish(task, tuple([argument for part in stream.unsent() for argument in part.arguments]))
        self.pump(task)

    # To the consumer

    def wake(self, part: StreamPart) -> None:
        """Sends what can be sent, now that a part was taken, or has what it waited for."""
        task = part.segment.task
        if part.is_lost and not part.num_awaited and task.stream is not None:
            self._send(task.request, part)
        self.pump(task)

    def pump(self, task: Task) -> None:
        """Sends what can be sent, and ends the task after the last part."""
        stream = task.stream
        if stream is None or not task.is_live:
            return
        while stream.front is not None:
            part = stream.front.end
            if not isinstance(part, StreamPart):
                following = stream.front.next_taken()
                if following is None:
                    break
                stream.front = following
            elif self._is_ready(part) and self._pass_on(task, stream, part):
                stream.front = part.following
            else:
                return
        if stream.is_ended and not stream.untaken:
            self._finish(task, stream.error)

    def _pass_on(self, task: Task, stream: StreamProgress, part: StreamPart) -> bool:
        """Sends a part, or puts it in its place. Returns False if it has to wait for lost tensors."""
        if task.parts is not None:
            self._place(task, task.parts, part)
            return True
        if not self._send(task.request, part):
            return False
        stream.untaken[part.index] = part
        return True

    def _place(self, task: Task, parts: PartList, part: StreamPart) -> None:
        """Puts a part where other workflows read it. Lost tensors are made again when they are read."""
        cell, request = parts.last, task.request
        parts.add_cell(task)
        cell.arguments = part.arguments
        self._turn.settle(cell, tuple([argument.resolve() for argument in part.arguments]))
        if request.has_stored:
            self._leases.pin(request.pinned, cell)
            self._release.touch(request)
        for argument in part.arguments:
            argument.hold = None

    def _finish(self, task: Task, error: DyOrcError | None) -> None:
        """Ends a task: its last part was taken, or is in its place."""
        if task.parts is not None:
            self._places.end(task.parts, error)
        if error is not None:
            self._endings.fail(task, error)
        else:
            self._endings.settle(task, ())

    def _is_ready(self, part: StreamPart) -> bool:
        """Returns whether the tensors of the next part are there. If not, it waits; if they never will be, the stream ends."""
        if part.num_awaited:
            return False
        for argument in part.arguments:
            if argument.future.state is PENDING:
                argument.future.add_waiter(part)
        if part.num_awaited:
            return False
        error = next((argument.future.error for argument in part.arguments if argument.future.error is not None), None)
        error = error or _misfit(part)
        if error is not None:
            self.fail(part, error)
        return error is None

    def _send(self, request: Request, part: StreamPart) -> bool:
        """Sends a part, unless its lost tensors have to be made again first."""
        if request.has_stored and self._needs.await_part(part):
            return False
        part.is_lost = False
        part.num_sent += 1
        if part.num_sent == 1:
            self._count(request, part)
        tensors = tuple([argument.resolve() for argument in part.arguments])
        if request.has_stored:
            self._release_blocks(part)
            part.blocks = blocks_of(tensors)
            self._leases.acquire(part.blocks)
        self._turn.actions.append(AnswerPart(request.request_id, part.index, tensors))
        return True

    def _count(self, request: Request, part: StreamPart) -> None:
        """Counts a part that is sent for the first time."""
        task, now_ns = part.segment.task, self._turn.now_ns
        if (story := request.context.story) is not None:
            trace_part(story, part.index, now_ns)
        if (stream := task.stream) is not None:
            request.context.record.count_part(part.index, now_ns - (stream.sent_ns or task.started_ns))
            stream.sent_ns = now_ns

    def _release_blocks(self, part: StreamPart) -> None:
        """Releases the tensors of a part, which will not be read again."""
        self._leases.release(part.blocks)
        part.blocks = ()

    def fail(self, part: StreamPart, error: DyOrcError) -> None:
        """Gives up a part that cannot be computed: its task needs nothing more, and fails once earlier parts were taken."""
        task = part.segment.task
        stream, request = task.stream, task.request
        if stream is None or not task.is_live:
            return
        for index in [index for index in stream.untaken if index >= part.index]:
            self._release_blocks(stream.untaken.pop(index))
        stream.front = None
        stream.is_ended = True
        stream.error = error
        part.is_lost = False
        self._endings.stop(task)
        self._endings.finish(task, ())
        if request.restoring:
            self._turn.swept[request] = None
        self._turn.runnable.append(part)

    # From the consumer

    def part_taken(self, root: Task, event: PartTaken) -> None:
        """Continues after the client has read a part; makes the part again if it could not be read."""
        request, stream = root.request, root.stream
        part = None if stream is None else stream.untaken.get(event.index)
        if stream is None or part is None:
            return
        if event.lost:
            self._lose(request, stream, part, event.lost)
            return
        had_stored = bool(part.blocks)
        self._release_blocks(part)
        del stream.untaken[event.index]
        stream.num_taken += 1
        if (story := request.context.story) is not None:
            story.parts[part.index].taken_ns = self._turn.now_ns
        if part.is_lost:
            part.is_lost = False
            self._turn.swept[request] = None
        for argument in part.arguments:
            argument.hold = None
        if had_stored:
            self._release.touch(request)
        self.resume(root)
        if stream.is_ended:
            self._turn.runnable.append(part)  # what was ready went out before; only the end waits for the client

    def _lose(self, request: Request, stream: StreamProgress, part: StreamPart, lost: Sequence[BlockId]) -> None:
        """Makes a part again that could not be read, together with other lost ones that wait to be taken: one by one, they would
        need the same values again and again, since those are released when a part is taken.
        """
        if part.is_lost or (part.blocks and not any(block in part.blocks for block in lost)):
            return  # this was an earlier copy of it
        if part.num_sent >= self._config.max_attempts:
            self.fail(part, ReplicaLostError(f"{part!r} of the answer was lost {part.num_sent} times before it was read"))
            return
        others = [other for other in stream.untaken.values() if not other.is_lost and not self._leases.are_there(other.blocks)]
        for each in dict.fromkeys((part, *others)):
            each.is_lost = True
            self._send(request, each)

    def resume(self, task: Task) -> None:
        """Resumes the paths of a task that waited for room, if there is some now."""
        for path in task.paths:
            if path.awaits_room and self._has_room(task, path.num_parts):
                path.awaits_room = False
                self._turn.runnable.append(path)

    def forget(self, root: Task) -> None:
        """Drops the untaken parts of a request that has ended."""
        stream, root.stream = root.stream, None
        for part in stream.untaken.values() if stream is not None else ():
            self._release_blocks(part)


def _misfit(part: StreamPart) -> WorkflowError | None:
    """Returns what is wrong with the tensors of a part."""
    workflow = part.segment.task.callee
    sizes: dict[str, tuple[int, str]] = {}
    try:
        for spec, argument in zip(workflow.signature.outputs.tensors, part.arguments, strict=True):
            tensor = argument.resolve()
            spec.check(tensor.dtype, tensor.shape, sizes, f"workflow {workflow.name!r} yielded as {part!r}")
    except Exception as error:  # a view or a shape that does not fit fails this request alone
        return WorkflowError(f"{error}")
    return None
