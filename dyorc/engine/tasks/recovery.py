"""Lost tensors: computed again when somebody needs to read them.

A replica that dies takes its tensors with it. That changes no value: a cell that was READY stays so, and what a workflow has
looked at stays valid. Only its bytes are missing, and only who needs to read them notices: a call that has to run, a workflow
that has to look, a request that has to be answered. These wait for a *restoration* of the cell, one however many they are.

    cell of a call: the call is run again as a call of its own, which stands in no journal; its own lost inputs first
    cell of a task: the cells of its result are restored, and it sees their tensors again
    input:          the orchestrator holds it, it is never lost

    needed ── start ──> waits for others ──> runs ──> done ──> whoever waits is told
                 └─────────────┴──────────────┴─────> failed: whoever waits fails, with the error

Restored work is certain work at its request's place in the queue. Guesses wait until they are certain before anything is
restored for them. What nobody waits for any more is stopped. A program that must not be repeated is not; what was restored too
often fails: each loss of a call's result counts against `max_attempts`, so nothing goes on for ever.

Restorations start and end in `run`, one by one, so that a long chain of lost tensors is no deep recursion.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from dyorc.engine.leases import Leases
from dyorc.engine.model.cells import Argument, Call, CallState, Cell
from dyorc.engine.model.journal import Part
from dyorc.engine.model.requests import Request, Task
from dyorc.engine.tasks.early_release import EarlyRelease
from dyorc.engine.tasks.waiting import Waiting
from dyorc.errors import DyOrcError, EffectLostError, ReplicaLostError
from dyorc.tensor import TensorRef, blocks_of


class Restoration:
    """A cell whose tensors are being made again.

    Attributes:
        call: What runs for it, if the cell is a call's.
        num_awaited: Restorations that it waits for, if the cell is a task's.
        waiters: Who needs the tensors: calls, other restorations, the cell itself if somebody wants to look at it, a part of the
            answer, and the request if it is its answer.
        is_done: Whether the tensors are there, and the waiters have still to be told.
        error: Why there will be none; likewise.
    """

    __slots__ = ("call", "cell", "error", "is_done", "num_awaited", "request", "waiters")

    def __init__(self, request: Request, cell: Cell) -> None:
        self.request = request
        self.cell = cell
        self.call: Call | None = None
        self.num_awaited = 0
        self.waiters: list[RestorationWaiter] = []
        self.is_done = False
        self.error: DyOrcError | None = None

    def __repr__(self) -> str:
        return f"restoration of the {self.cell!r}"


RestorationWaiter: TypeAlias = Call | Restoration | Cell | Part | Request


class Recovery:
    """Restores lost tensors.

    Args:
        max_attempts: How often a call's result may be lost.
        release: Told when something has been restored, and may be released again.
        touched: Takes requests that are to be swept.
        make_ready: Takes a call that may run now; numbers it if it is new.
        withdraw: Takes a submitted call back.
        call_failed: Takes a call that cannot be run.
        answer: Takes a request whose answer is there again, or cannot be had.
        fail_part: Takes a part that cannot be had.
        is_due: Whether a part is still to be sent or to be taken.
        tell: Takes down a step of a request's story.

    Attributes:
        pending: Restorations that have to be started or ended.
    """

    def __init__(
        self,
        max_attempts: int,
        leases: Leases,
        release: EarlyRelease,
        waiting: Waiting,
        touched: dict[Request, None],
        make_ready: Callable[[Call], None],
        withdraw: Callable[[Call], None],
        call_failed: Callable[[Call, DyOrcError], None],
        answer: Callable[[Request, DyOrcError | None], None],
        fail_part: Callable[[Part, DyOrcError], None],
        is_due: Callable[[Part], bool],
        tell: Callable[[Request, str, str], None],
    ) -> None:
        self._max_attempts = max_attempts
        self._leases = leases
        self._release = release
        self._waiting = waiting
        self._touched = touched
        self._make_ready = make_ready
        self._withdraw = withdraw
        self._call_failed = call_failed
        self._answer = answer
        self._fail_part = fail_part
        self._is_due = is_due
        self._tell = tell
        self.pending: deque[Restoration] = deque()

    # Who needs what

    def await_inputs(self, call: Call) -> bool:
        """Whether a call has to wait for lost inputs, which it now does. Those that are there are kept for it."""
        request = call.segment.task.request
        missing = self._missing(request, call.arguments)
        for cell in missing:
            call.num_awaited += 1
            self._need(request, cell, call)
        return bool(missing)

    def await_part(self, part: Part) -> bool:
        """Whether a part of an answer has to wait for lost tensors, which it now does. Those that are there are kept for it."""
        request = part.segment.task.request
        missing = self._missing(request, part.arguments)
        for cell in missing:
            part.num_awaited += 1
            self._need(request, cell, part)
        return bool(missing)

    def await_cell(self, request: Request, cell: Cell, waiter: Cell | Request) -> bool:
        """Whether a cell is to be restored before all of its tensors can be read; then the waiter is told when it is."""
        if self._leases.are_there(blocks_of(cell.tensors)):
            return False
        self._need(request, cell, waiter)
        return True

    def _missing(self, request: Request, arguments: Iterable[Argument]) -> list[Cell]:
        """Cells of arguments that were lost, each once."""
        missing: dict[Cell, None] = {}
        for argument in arguments:
            cell = argument.cell
            if self._leases.are_there(blocks_of((cell.tensors[argument.field],))):
                self._leases.keep(request.kept, cell)
            else:
                missing[cell] = None
        return list(missing)

    def _need(self, request: Request, cell: Cell, waiter: RestorationWaiter) -> None:
        restoration = request.restoring.get(cell)
        if restoration is None:
            restoration = request.restoring[cell] = Restoration(request, cell)
            self.pending.append(restoration)
        restoration.waiters.append(waiter)

    # From start to end

    def run(self) -> None:
        """Starts or ends the next restoration."""
        restoration = self.pending.popleft()
        if restoration.request.restoring.get(restoration.cell) is not restoration:
            return  # it was stopped
        if restoration.is_done or restoration.error is not None:
            self._end(restoration)
            return
        producer = restoration.cell.producer
        if producer is None:
            self._fail(restoration, ReplicaLostError("an input was lost with its replica"))
        elif isinstance(producer, Task):
            self._restore_result(restoration, producer)
        else:
            self._run_again(restoration, producer)

    def _restore_result(self, restoration: Restoration, task: Task) -> None:
        """A task's tensors are those of its result, wherever they are now."""
        request, cell = restoration.request, restoration.cell
        for missing in self._missing(request, task.result):
            restoration.num_awaited += 1
            self._need(request, missing, restoration)
        if not restoration.num_awaited:
            self._leases.let_go(request.kept, cell)
            cell.refill(tuple([argument.resolve() for argument in task.result]))
            self._leases.keep(request.kept, cell)
            self._finish(restoration)

    def _run_again(self, restoration: Restoration, producer: Call) -> None:
        name = producer.callee.name
        if not producer.callee.options.is_repeatable:
            what = f"a result of program {name!r} was lost with its replica"
            self._fail(restoration, EffectLostError(f"{what}; the program is not declared idempotent, so it is not run again"))
            return
        producer.num_losses += 1
        if producer.num_losses >= self._max_attempts:
            self._fail(restoration, ReplicaLostError(f"a result of program {name!r} was lost {producer.num_losses} times"))
            return
        call = restoration.call = Call(producer.callee, producer.arguments, producer.statics, producer.segment)
        call.restores = restoration
        call.cell.producer = None  # the cell that it fills is another's; this one would only be a cycle
        self._tell(restoration.request, "lost", name)
        self._make_ready(call)

    def call_done(self, call: Call, outputs: tuple[TensorRef, ...]) -> None:
        """A call that was run again has ended."""
        restoration = call.restores
        if restoration is None or call.state is CallState.WITHDRAWN:
            self._leases.refuse(blocks_of(outputs))
            return
        call.state = CallState.SETTLED
        request, cell = restoration.request, restoration.cell
        self._leases.keep_new(request.kept, cell, blocks_of(outputs))
        cell.refill(outputs)
        self._tell(request, "recomputed", call.callee.name)
        self._finish(restoration)

    def failed(self, call: Call, error: DyOrcError) -> None:
        """A call that was run again cannot be."""
        if call.restores is not None and call.state is not CallState.WITHDRAWN:
            call.state = CallState.SETTLED
            self._fail(call.restores, error)

    def _finish(self, restoration: Restoration) -> None:
        restoration.is_done = True
        self.pending.append(restoration)

    def _fail(self, restoration: Restoration, error: DyOrcError) -> None:
        if restoration.error is None:
            restoration.error = error
            self.pending.append(restoration)

    def _end(self, restoration: Restoration) -> None:
        """Tells those who wait."""
        del restoration.request.restoring[restoration.cell]
        self._release.touch(restoration.request)
        restoration.call = None
        waiters, restoration.waiters = restoration.waiters, []
        for waiter in waiters:
            self._end_wait(waiter, restoration)
        if restoration.error is not None:
            self._touched[restoration.request] = None  # those who fail may have waited for others too

    def _end_wait(self, waiter: RestorationWaiter, restoration: Restoration) -> None:
        error = restoration.error
        match waiter:
            case Call():
                if waiter.state is CallState.WAITING:
                    waiter.num_awaited -= 1
                    if error is not None:
                        self._call_failed(waiter, error)
                    elif not waiter.num_awaited:
                        self._make_ready(waiter)
            case Restoration():
                waiter.num_awaited -= 1
                if error is not None:
                    self._fail(waiter, error)
                elif not waiter.num_awaited:
                    self.pending.append(waiter)
            case Cell():
                self._waiting.restored(waiter, error)
            case Part():
                self._waiting.tell(waiter)
                if error is not None:
                    self._fail_part(waiter, error)
            case Request():
                self._answer(waiter, error)

    # Stopping

    def sweep(self, request: Request) -> None:
        """Stops what nobody waits for any more."""
        needs: dict[Restoration, list[Restoration]] = {}
        live: list[Restoration] = []
        for restoration in request.restoring.values():
            for waiter in restoration.waiters:
                above = waiter.restores if isinstance(waiter, Call) else waiter
                if isinstance(above, Restoration):
                    needs.setdefault(above, []).append(restoration)
                elif self._is_waiting(waiter):
                    live.append(restoration)
        needed: set[Restoration] = set()
        while live:
            restoration = live.pop()
            if restoration not in needed:
                needed.add(restoration)
                if restoration.error is None:
                    live.extend(needs.get(restoration, ()))
        for restoration in [each for each in request.restoring.values() if each not in needed]:
            self._stop(restoration)

    def _is_waiting(self, waiter: RestorationWaiter) -> bool:
        if isinstance(waiter, Call):
            return waiter.state is CallState.WAITING
        if isinstance(waiter, Part):
            return self._is_due(waiter)
        return self._waiting.is_awaited(waiter) if isinstance(waiter, Cell) else True

    def forget(self, request: Request) -> None:
        """Stops everything for a request that has ended."""
        for restoration in list(request.restoring.values()):
            self._stop(restoration)

    def _stop(self, restoration: Restoration) -> None:
        del restoration.request.restoring[restoration.cell]
        call, restoration.call = restoration.call, None
        if call is not None and call.state is not CallState.SETTLED:
            self._withdraw(call)
            call.state = CallState.WITHDRAWN
        for waiter in restoration.waiters:
            if isinstance(waiter, Cell):
                self._waiting.forget(waiter)
        restoration.waiters = []
