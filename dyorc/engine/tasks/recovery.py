"""Lost tensors are computed again when they have to be read.

A replica that dies takes its tensors with it. That changes no value: a READY future stays READY, and what a workflow has read
stays valid. Only the bytes are missing, and only their readers notice: a call that has to run, a workflow that reads a value, a
request that has to be answered. They wait for a *restoration* of the future, one for all of them.

    future of a call: the call is run again as a separate call, which is in no journal; its own lost inputs first
    part of a stream: so is its call, as far as to the part, once for all lost parts; if the call itself still runs, it starts
                    again. A running call that reads the stream gets each part as it comes, and as fast as it reads them
    future of a task: the futures of its result are restored, and it sees their tensors again
    input:          the orchestrator holds it, it is never lost

    needed ── start ──> waits for others ──> runs ──> done ──> the waiters continue
    └─────────────┴──────────────┴─────> failed: the waiters fail, with the error

Restored work is certain work at its request's place in the queue. Nothing is restored for guesses before they are certain.
What is no longer awaited is stopped. A program that must not be repeated is not run again, and neither is one whose result was
lost `max_attempts` times, so nothing goes on for ever.

Restorations start and end one by one, in the turn's order, so that a long chain of lost tensors is no deep recursion.
"""

from dyorc.authoring.program import Program
from dyorc.authoring.resident import ChainLink
from dyorc.core.tensor import TensorRef, blocks_of
from dyorc.engine.actions import RebuildFailed
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.interfaces import Dispatcher
from dyorc.engine.model.futures import Argument, Future
from dyorc.engine.model.journal import StreamPart
from dyorc.engine.model.part_list import Cell, PartList, StreamArgument
from dyorc.engine.model.program_call import Call, CallState, Feed
from dyorc.engine.model.request_tree import Request, Restoration, RestorationWaiter, Task
from dyorc.engine.model.tree_walks import is_unfinished
from dyorc.engine.tasks.chains import chain_to_rebuild, tensors_of, with_residents
from dyorc.engine.tasks.early_release import EarlyRelease
from dyorc.engine.tasks.tensor_needs import Fetches, TensorNeeds
from dyorc.engine.tasks.trace_events import trace_abandoned, trace_recomputed, trace_repeat
from dyorc.engine.turn import CallPart
from dyorc.errors import DyOrcError, EffectLostError, ProgramError, ReplicaLostError, StreamDivergedError


def diverged(call: Call, what: str) -> StreamDivergedError:
    """Returns the error of a call that was run again and yielded something else than before."""
    return StreamDivergedError(
        f"program {call.callee.name!r} was run again, because its replica was lost, and yielded {what}; it has to yield the same "
        f"for the same inputs, or to be declared pure=False"
    )


class Recovery:
    """Restores lost tensors."""

    def __init__(
        self, context: EngineContext, dispatcher: Dispatcher, needs: TensorNeeds, fetches: Fetches, release: EarlyRelease
    ) -> None:
        self._max_attempts = context.config.max_attempts
        self._max_ahead = context.config.max_untaken_parts
        self._turn = context.turn
        self._leases = context.leases
        self._dispatcher = dispatcher
        self._needs = needs
        self._fetches = fetches
        self._release = release
        self._failed_rebuilds: dict[str, Program] = {}

    # From start to end

    def advance(self, restoration: Restoration) -> None:
        """Starts or ends a restoration."""
        if restoration.request.restoring.get(restoration.future) is not restoration:
            return  # it was stopped
        if restoration.is_done or restoration.error is not None:
            self._end(restoration)
            return
        producer = restoration.future.producer
        if producer is None:
            self.fail(restoration, ReplicaLostError("an input was lost with its replica"))
        elif isinstance(producer, Task):
            future = restoration.future
            self._restore_result(restoration, future.arguments if isinstance(future, Cell) else producer.result)
        elif producer.parts is None:
            self._run_again(restoration, producer)
        else:
            self._restore_parts(restoration, producer, producer.parts)

    def _restore_parts(self, restoration: Restoration, producer: Call, parts: PartList) -> None:
        """Makes lost parts again: by the call itself, from its start if it has passed them; by another one if it has ended."""
        again = restoration.call or producer
        if again is producer and producer.state in (CallState.SETTLED, CallState.WITHDRAWN):
            self._repeat(restoration, producer, parts)
            return
        first = self._note_wanted(restoration, parts)
        yielded = again.parts
        if yielded is None:
            return
        if again.state is CallState.RUNNING and yielded.num_again > first:
            if not self._may_run_again(restoration, producer):
                return
            self._release_ahead(restoration, parts)
            # Another call might wait for the place of this one, and this one for readers.
            yielded.num_read = max(parts.furthest, self._least_read(restoration))
            restoration.is_paced = True
            self._dispatcher.restart(again)
        else:
            yielded.num_read = max(yielded.num_read, self._least_read(restoration))
            self._dispatcher.grant(again)

    def _note_wanted(self, restoration: Restoration, parts: PartList) -> int:
        """Notes how far parts have to be made again, and returns the index of the first one."""
        feeds = [feed for feed in restoration.feeds if feed.is_live]
        restoration.feeds = dict.fromkeys(feeds)
        wanted = [cell.index for cell in restoration.cells if not self._is_there(cell)]
        wanted += [feed.num_fed for feed in feeds if feed.num_awaited and feed.num_fed < parts.num_parts]
        last = max(wanted, default=-1)
        if last >= restoration.end and feeds:
            lost = (at for at in range(parts.num_parts - 1, last, -1) if not self._is_there(parts.cells[at]))
            last = next(lost, last)
        restoration.end = max(restoration.end, last + 1)
        return min(wanted, default=restoration.end)

    def _release_ahead(self, restoration: Restoration, parts: PartList) -> None:
        """Makes room for parts that only running calls read, by having those after them made again as well."""
        first = self._note_wanted(restoration, parts)
        if restoration.feeds:
            self._release.release_ahead(restoration.request, parts, first)
            restoration.end = parts.num_parts

    def _is_there(self, cell: Cell) -> bool:
        return self._leases.are_there(blocks_of(cell.tensors))

    def _least_read(self, restoration: Restoration) -> int:
        """Returns how far the parts of a restoration count as read at least, so that the lost ones may come: all together, except
        those that only running calls read, one after another."""
        explicit = max([cell.index for cell in restoration.cells], default=-1) + 1 - self._max_ahead
        return max([explicit, *[feed.num_taken for feed in restoration.feeds if feed.is_live]], default=0)

    def _repeat(self, restoration: Restoration, producer: Call, parts: PartList) -> None:
        """Runs a call that yields again, as far as to the last lost part that anything may still need."""
        pinned = restoration.request.pinned
        for cell in parts.cells if restoration.cells else ():
            if cell in pinned and not self._leases.are_there(pinned[cell]):
                restoration.cells[cell] = None
        self._release_ahead(restoration, parts)
        self._run_again(restoration, producer)
        call = restoration.call
        if call is not None:
            call.parts = PartList(call)
            call.parts.num_read = self._least_read(restoration)
            restoration.is_paced = True

    def reconsider(self, producer: Call) -> None:
        """Looks for another way to restore parts that a call will no longer come to."""
        restoration = producer.segment.task.request.restoring.get(producer.future)
        if restoration is not None and restoration.call is None:
            self._turn.restorations.append(restoration)

    def part_came(self, came: CallPart) -> StreamDivergedError | None:
        """Takes a part that came before, from the same call or one that repeats it. It is kept only where the first was lost.

        Returns:
            The error of the call, if it has yielded something else.
        """
        call, request = came.call, came.call.segment.task.request
        restoration = call.restores or request.restoring.get(call.future)
        producer = call if call.restores is None else call.restores.future.producer
        blocks = blocks_of(came.tensors)
        if producer is None or producer.parts is None or came.index >= producer.parts.num_parts:
            self._leases.discard(blocks)
            return None
        cell = producer.parts.cells[came.index]
        if came.digest != cell.digest:
            self._leases.discard(blocks)
            return diverged(call, f"another part {cell.index} than before")
        is_wanted = restoration is not None and restoration.wants(cell, self._max_ahead)
        if (is_wanted or cell in request.pinned) and not self._is_there(cell):
            self._refill(request, cell, came.tensors)
        else:
            self._leases.discard(blocks)
        if restoration is not None:
            self._go_on_feeding(restoration, cell)
            if came.index + 1 >= restoration.end:
                self._end_parts(restoration, call)
        return None

    def _go_on_feeding(self, restoration: Restoration, cell: Cell) -> None:
        """Lets calls go on that have waited for a part, if it is there."""
        for feed in restoration.feeds:
            if feed.num_fed == cell.index and feed in restoration.waiters and self._is_there(cell):
                restoration.waiters.remove(feed)
                self._turn.restored.append((feed, None))

    def _end_parts(self, restoration: Restoration, call: Call) -> None:
        """Ends a restoration whose parts have all come again, as far as they have not been lost once more."""
        if restoration.is_done:
            return
        if call.restores is not None:
            restoration.call = None
            self._drop_streams(call)
            self._dispatcher.withdraw(call)
            call.withdraw()
            if call.trace is not None:
                trace_abandoned(call.trace, self._turn.now_ns, is_wrong=False)
        if all(self._is_there(cell) for cell in restoration.cells):
            self._finish(restoration)
        else:
            self._turn.restorations.append(restoration)

    def _restore_result(self, restoration: Restoration, result: tuple[Argument, ...]) -> None:
        """Refills a task's future, or a part of it, with the tensors of its result, wherever they are now."""
        if self._needs.await_result(restoration, result):
            return
        request, future = restoration.request, restoration.future
        self._leases.unpin(request.pinned, future)
        future.refill(tuple([argument.resolve() for argument in result]))
        self._leases.pin(request.pinned, future)
        self._finish(restoration)

    def _may_run_again(self, restoration: Restoration, producer: Call) -> bool:
        """Counts a loss. Returns whether a call may be repeated; if not, the restoration fails."""
        name = producer.callee.name
        if not producer.callee.options.is_repeatable:
            text = f"a result of program {name!r} was lost with its replica; the program is not declared idempotent, "
            self.fail(restoration, EffectLostError(f"{text}so it is not run again"))
            return False
        wanted = [restoration.future, *restoration.cells, *[feed.next_cell for feed in restoration.feeds]]
        kept = [restoration.request.pinned.get(future, ()) for future in wanted]  # what was released was not lost
        producer.num_losses += not all(self._leases.are_there(blocks) for blocks in kept)
        if producer.num_losses >= self._max_attempts:
            self.fail(restoration, ReplicaLostError(f"a result of program {name!r} was lost {producer.num_losses} times"))
            return False
        return True

    def _run_again(self, restoration: Restoration, producer: Call) -> None:
        if not self._may_run_again(restoration, producer):
            return
        may_rebuild = restoration.request.may_rebuild
        chain = chain_to_rebuild(restoration.future, producer, self._leases) if may_rebuild else []
        arguments = producer.arguments if not chain else tuple([each for link in chain for each in tensors_of(link)])
        call = restoration.call = Call(producer.callee, arguments, producer.statics, producer.segment)
        call.chain = [ChainLink(link.callee.name, len(tensors_of(link)), link.statics) for link in chain]
        call.restores = restoration
        call.streams = tuple([StreamArgument(stream.parts, call) for stream in producer.streams])
        call.future.producer = None  # its result goes into another future; this reference would only make a cycle
        if (story := restoration.request.context.story) is not None:
            trace_repeat(story, producer, self._turn.now_ns, is_rebuilt=bool(chain))
        self._turn.ready.append(call)

    def rebuild_failed(self, restoration: Restoration, call: Call, error: ProgramError) -> None:
        """Has a resident made again by the calls of its chain, one by one, because `rebuild` has failed; so are all others of its
        request from now on, or each of these calls might be tried by `rebuild` first."""
        request, producer = restoration.request, restoration.future.producer
        if request.restoring.get(restoration.future) is not restoration:
            return
        request.may_rebuild = False
        restoration.call = None
        if isinstance(producer, Call):
            producer.num_losses -= 1  # it is counted once more when it is run
        if self._failed_rebuilds.get(call.callee.name) is not call.callee:
            self._failed_rebuilds[call.callee.name] = call.callee
            workflow = "" if request.root is None else request.root.callee.name
            self._turn.actions.append(RebuildFailed(call.callee.name, workflow, str(error)))
        self._turn.restorations.append(restoration)

    def call_done(self, restoration: Restoration, outputs: tuple[TensorRef, ...]) -> None:
        """Takes the results of a call that was run again."""
        if (restoration.cells or restoration.feeds) and restoration.call is not None:
            self.fail(restoration, diverged(restoration.call, "fewer parts than before"))
            return
        request, future = restoration.request, restoration.future
        if restoration.call is not None and restoration.call.chain:
            outputs = with_residents(future.tensors, outputs)
        self._refill(request, future, outputs)
        if future.resident_holds is not None:
            request.keeping[future] = None
        if (story := request.context.story) is not None and restoration.call is not None:
            trace_recomputed(story, restoration.future, restoration.call, self._turn.now_ns)
        self._finish(restoration)

    def _refill(self, request: Request, future: Future, tensors: tuple[TensorRef, ...]) -> None:
        """Puts tensors that were made again in the places of the lost ones. Those that are there stay: calls that wait in queues
        are about to read them."""
        kept = tuple([
            old if old.block and self._leases.is_there((old.holder, old.block)) else new
            for old, new in zip(future.tensors, tensors, strict=True)
        ])  # fmt: skip
        known = set(blocks_of(future.tensors))
        made, blocks = [block for block in blocks_of(tensors) if block not in known], blocks_of(kept)
        self._leases.acquire([block for block in blocks if block in known])
        self._leases.acquire_new([block for block in blocks if block not in known])
        self._leases.unpin(request.pinned, future)
        if blocks:
            request.pinned[future] = blocks
        self._leases.discard([block for block in made if block not in blocks])
        future.refill(kept)

    def _finish(self, restoration: Restoration) -> None:
        restoration.is_done = True
        self._turn.restorations.append(restoration)

    def fail(self, restoration: Restoration, error: DyOrcError) -> None:
        """Ends a restoration whose tensors cannot be computed."""
        if restoration.error is None:
            restoration.error = error
            self._turn.restorations.append(restoration)

    def _end(self, restoration: Restoration) -> None:
        """Ends a restoration and continues its waiters."""
        del restoration.request.restoring[restoration.future]
        self._release.touch(restoration.request)
        if restoration.call is not None:
            self._drop_streams(restoration.call)
        restoration.call = None
        waiters, restoration.waiters = restoration.waiters, []
        for waiter in waiters:
            if isinstance(waiter, Restoration):
                self._end_wait(waiter, restoration.error)
            else:
                self._turn.restored.append((waiter, restoration.error))
        if restoration.error is not None:
            self._turn.swept[restoration.request] = None  # waiters that fail may have waited for other restorations

    def _end_wait(self, waiter: Restoration, error: DyOrcError | None) -> None:
        waiter.num_awaited -= 1
        if error is not None:
            self.fail(waiter, error)
        elif not waiter.num_awaited:
            self._turn.restorations.append(waiter)

    def _drop_streams(self, call: Call) -> None:
        """Ends the streams of a call that has repeated another one."""
        for stream in call.streams:
            stream.drop()
            self._turn.swept[call.segment.task.request] = None

    # Stopping

    def sweep(self, request: Request) -> None:
        """Stops what is no longer awaited."""
        needs: dict[Restoration, list[Restoration]] = {}
        live: list[Restoration] = []
        for restoration in request.restoring.values():
            for waiter in restoration.waiters:
                above = waiter.restores if isinstance(waiter, Call) else waiter
                if isinstance(above, Restoration):
                    needs.setdefault(above, []).append(restoration)
                elif self._is_waiting(waiter):
                    live.append(restoration)
            if any(self._is_waiting(feed) for feed in restoration.feeds):
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
        if isinstance(waiter, StreamPart):
            stream = waiter.segment.task.stream
            return stream is not None and stream.is_due(waiter)
        if isinstance(waiter, Feed):
            return is_unfinished(waiter.call)  # if it has lost its replica, it will read all of it again
        return self._fetches.is_awaited(waiter) if isinstance(waiter, Future) else True

    def forget(self, request: Request) -> None:
        """Stops everything for a request that has ended."""
        for restoration in list(request.restoring.values()):
            self._stop(restoration)

    def _stop(self, restoration: Restoration) -> None:
        del restoration.request.restoring[restoration.future]
        call, restoration.call = restoration.call, None
        if call is not None:
            self._drop_streams(call)
        if call is not None and call.state is not CallState.SETTLED:
            self._dispatcher.withdraw(call)
            call.withdraw()
            if call.trace is not None:
                trace_abandoned(call.trace, self._turn.now_ns, is_wrong=False)
        for waiter in restoration.waiters:
            if isinstance(waiter, Future):
                self._fetches.forget(waiter)
        restoration.waiters = []
