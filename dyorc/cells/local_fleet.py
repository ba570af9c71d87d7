"""The fleet of programs in this process: loads them, finds their inputs, and runs their batches."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import structlog

from dyorc.answering.input_identity import InputsIdentity
from dyorc.answering.tensor_exchange import Tensors
from dyorc.authoring.program import Program
from dyorc.cells.batches import CrashNotes, LocalBatch
from dyorc.cells.hosted_calls import HostedCalls
from dyorc.cells.hosted_program import FleetContext, HostedProgram
from dyorc.cells.loop_watch import BatchWatchdog
from dyorc.cells.program_group import ProgramGroups
from dyorc.cells.program_loader import ProgramLoader
from dyorc.cells.program_tensors import ProgramResults
from dyorc.config import CellsConfig, LogsConfig
from dyorc.core.tensor import BlockId, TensorRef, is_resident
from dyorc.devices.device_tensors import DeviceTensors
from dyorc.engine.actions import BatchControl, DispatchBatch
from dyorc.engine.events import BatchFailed, Event, LoadFailed, ReplicaLeft, TensorsLost
from dyorc.errors import DefinitionError, ProgramLoadError
from dyorc.models.status import StatusBoard
from dyorc.replica.program_lifecycle import free_memory
from dyorc.replica.program_thread import interpreter_settings
from dyorc.scaling.model import LeadTimes
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.transport.column_codec import Rows
from dyorc.transport.inbox import Inbox, InputsLostError
from dyorc.transport.outbox import Outbox
from dyorc.transport.tiers import InputMoves

_log = structlog.get_logger("dyorc.cells")

_MAX_RETRY_S = 30.0
_POLL_ROOM_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSite:
    """The process where programs run, and its settings.

    Attributes:
        node: The name of this machine.
        num_cores: Cores that programs on threads share.
        runs_all: Whether all programs run here, and none on replicas.
        room_wait_s: How long results wait for room in the arena.
        notes: Notes what runs; None if no other process reads that.
        spans: Where spans of the programs' code go; None if nothing is traced.
    """

    config: CellsConfig
    node: str
    num_cores: int
    runs_all: bool = True
    room_wait_s: float = 0.0
    notes: CrashNotes | None = None
    spans: ProgramSpans | None = None


class LocalFleet:
    """One replica of each program, in this process.

    Raises:
        DefinitionError: If a program has a plan.
    """

    _context: FleetContext

    def __init__(self, programs: Sequence[Program], site: CellSite, tensors: Tensors, status: StatusBoard) -> None:
        for program in programs:
            _check_is_whole(program)
        self._programs = {program.name: program for program in programs}
        self._site = site
        self._tensors = tensors
        self._status = status
        self._hosted: dict[str, HostedProgram | HostedCalls] = {}
        self._due: list[tuple[HostedProgram | HostedCalls, LocalBatch, Callable[[], None]]] = []
        self._wanted = {program.name: program.options.bounds.num_at_start > 0 for program in programs}
        self._loaders: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = threading.Condition()
        self._groups = ProgramGroups()
        self._parked: dict[str, str] = {}
        """Replicas that have dropped their program, by its name: the engine knows them until another joins, or it leaves."""
        self._loader = ProgramLoader(self._groups, site.config.max_hung, site.spans)

    @asynccontextmanager
    async def running(self, post: Callable[[Event], None], flush: Callable[[], None]) -> AsyncGenerator[None]:
        """Runs the programs while entered; they may still be loading."""
        watch = BatchWatchdog()
        exchange = self._tensors.exchange
        publisher = ProgramResults(self._site.node, Outbox(exchange.arena, self._tensors.inline_limit_bytes))
        devices = DeviceTensors(publisher.publish, self._tensors.free, self._site.config.device_bytes)
        self._tensors.devices = devices
        self._context = FleetContext(
            node=self._site.node, num_cores=self._site.num_cores, inline_limit_s=self._site.config.inline_limit_s,
            room_wait_s=self._site.room_wait_s, wait_for_room=self._wait_for_room, tensors=self._tensors, status=self._status,
            post=post, flush=flush, notes=self._site.notes, watch=watch, devices=devices,
        )  # fmt: skip
        with watch, interpreter_settings(self._site.config.switch_interval_s):
            for program in self._programs.values():
                self._begin(program)
            try:
                yield
            finally:
                await self._stop()

    def add(self, program: Program) -> bool:
        """Loads another program, if it is to run here.

        Raises:
            DefinitionError: If it has a plan.
        """
        if not self._site.runs_all and not program.options.in_process:
            return False
        _check_is_whole(program)
        self._programs[program.name] = program
        self._wanted[program.name] = program.options.bounds.num_at_start > 0
        self._begin(program)
        return True

    def remove(self, program: str) -> None:
        """Removes a program, and drops it if it is loaded."""
        removed = self._programs.pop(program, None)
        if removed is None:
            return
        del self._wanted[program]
        if (loader := self._loaders.pop(program, None)) is not None:
            loader.cancel()
        if (hosted := self._hosted.pop(program, None)) is not None:
            hosted.drop()
            self._parked[program] = hosted.replica_id
        self._forget_parked(program, "its program was removed")
        if removed.shares_process and not any(other.group == removed.group for other in self._programs.values()):
            self._groups.forget(removed.group)

    def _forget_parked(self, program: str, reason: str) -> None:
        if (parked := self._parked.pop(program, None)) is not None:
            self._context.post(ReplicaLeft(parked, reason))

    def _begin(self, program: Program) -> None:
        self._status.programs[program.name].max_replicas = 1
        self._status.want(program.name, int(self._wanted[program.name]))
        self._start_loading(program)

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for hosted in self._hosted.values():
            if isinstance(hosted, HostedCalls):
                hosted.close()
        await self._loader.stop()
        for hosted in self._hosted.values():
            hosted.inputs.close()
        self._hosted.clear()

    # Loading

    def _start_loading(self, program: Program) -> None:
        """Loads a program, unless it is loaded, is being loaded, or should not be."""
        name = program.name
        if not self._wanted[name] or name in self._loaders or name in self._hosted:
            return
        task = self._loaders[name] = asyncio.get_running_loop().create_task(self._load_until_it_works(program))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load_until_it_works(self, program: Program) -> None:
        delay_s = self._site.config.load_retry_s
        while self._wanted[program.name] and not await self._load(program):
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _MAX_RETRY_S)
        del self._loaders[program.name]  # now, not when the task has ended: it may be wanted again in between

    async def _load(self, program: Program) -> bool:
        name = program.name
        try:
            loaded = await self._loader.load(program, self._context_of(program))
        except ProgramLoadError as error:
            self._failed(error)
            return False
        if loaded is None:
            return False
        hosted, load_s = loaded
        self._hosted[name] = hosted
        self._status.programs[name].lead = LeadTimes(load_s, load_s)
        hosted.join()
        self._forget_parked(name, "another has loaded its program")
        self._context.flush()
        return True

    def _context_of(self, program: Program) -> FleetContext:
        """Returns the program's context: no cores if it has its own device."""
        has_device = bool(program.options.ray_actor_options.get("num_gpus"))
        return replace(self._context, num_cores=0) if has_device else self._context

    def _failed(self, error: ProgramLoadError) -> None:
        reason = f"{error.error_type}: {error.message}"
        _log.warning("program_load_failed", program=error.program, error=reason)
        self._status.load_failed(error.program, reason)
        self._context.post(LoadFailed(error.program, error.error_type, error.message, error.remote_traceback))
        self._context.flush()

    # The engine's actions

    def control(self, action: BatchControl) -> None:
        """Passes something on to a batch that runs."""
        for hosted in self._hosted.values():
            if isinstance(hosted, HostedCalls) and hosted.replica_id == action.replica_id:
                hosted.control(action)

    def dispatch(self, action: DispatchBatch) -> None:
        """Finds a batch's inputs, and runs it on its thread, or at the end of the turn."""
        hosted = self._hosted.get(action.program.name)
        if hosted is None or hosted.replica_id != action.replica_id:
            return  # it was given up meanwhile, and the engine knows
        hosted.hold()
        stored = [tensor for operands in action.operands for tensor in operands if tensor.block and not is_resident(tensor)]
        if stored and not self._tensors.is_near(hosted.inputs.on_host(action, stored)):
            task = asyncio.get_running_loop().create_task(self._fetch(hosted, action, stored))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._run(
                hosted, action, stored, partial(hosted.inputs.read, action.operands, bool(stored), is_chain=bool(action.chain))
            )

    async def _fetch(self, hosted: HostedProgram | HostedCalls, action: DispatchBatch, stored: Sequence[TensorRef]) -> None:
        """Fetches inputs from other nodes, then runs the batch."""
        flat = [tensor for operands in action.operands for tensor in operands if not is_resident(tensor)]
        moves = InputMoves()
        fetching = self._tensors.fetch(flat, moves)
        await asyncio.wait([fetching])
        self._run(hosted, action, stored, lambda: (hosted.inputs.beside(action.operands, fetching.result()), None), moves)
        self.end_turn()
        self._context.flush()

    def _run(
        self,
        hosted: HostedProgram | HostedCalls,
        action: DispatchBatch,
        stored: Sequence[TensorRef],
        gather: Callable[[], tuple[list[Rows], Inbox | None]],
        fetched: InputMoves | None = None,
    ) -> None:
        started_s = time.perf_counter()
        try:
            columns, inbox = gather()
        except InputsLostError as error:
            hosted.report(TensorsLost(action.replica_id, action.batch_id, error.blocks))
        except Exception as error:
            hosted.report(BatchFailed(action.replica_id, action.batch_id, type(error).__name__, str(error)))
        else:
            gather_s = time.perf_counter() - started_s
            moves = fetched if inbox is None else inbox.moves
            batch = LocalBatch(
                action.replica_id, action.batch_id, len(action.operands), columns, action.statics, stored, gather_s,
                () if moves is None else moves.take(), action.room_share, _digests(action.inputs) if action.inputs else (),
                action.is_suspect, action.span, inbox, action.chain, action.max_parts, action.seen,
            )  # fmt: skip
            if hosted.is_inline:
                self._due.append((hosted, batch, partial(self._run, hosted, action, stored, gather, fetched)))
            else:
                hosted.run(batch)

    def end_turn(self) -> None:
        """Runs the batches that are due on the loop. Those for threads were submitted at once."""
        while self._due:
            due, self._due = self._due, []
            for hosted, batch, run_again in due:
                hosted.run(batch, run_again)

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Drops residents, and wakes programs that wait for room in the arena."""
        self._groups.release(blocks)
        with self._freed:
            self._freed.notify_all()

    def _wait_for_room(self, timeout_s: float) -> None:
        """Waits for a release, on a program's thread. Waits briefly, so that a release just before is not missed for long."""
        with self._freed:
            self._freed.wait(min(timeout_s, _POLL_ROOM_S))

    def stage(self, replica_id: str, tensors: Sequence[TensorRef]) -> None:
        """Does nothing: inputs are read when they are needed."""

    def want(self, program: str, num_warm: int, num_parked: int) -> bool:
        """Loads a program if any copy is wanted: there is at most one."""
        if program not in self._wanted:
            return False
        self._wanted[program] = num_warm > 0
        self._status.want(program, min(num_warm, 1))
        self._start_loading(self._programs[program])
        return True

    def park(self, replica_id: str) -> None:
        """Drops a program and frees its memory."""
        hosted = self._take_out(replica_id)
        if hosted is not None:
            _log.info("replica_parked", program=hosted.program, replica=replica_id)
            leftovers = hosted.leftovers()
            hosted.drop()
            self._parked[hosted.program] = replica_id
            # It may run the user's `__del__`, which may hang: that must not keep the process from ending.
            threading.Thread(target=free_memory, args=(leftovers,), name="dyorc-freeing", daemon=True).start()
            self._start_loading(self._programs[hosted.program])  # it may be wanted again by now

    def give_up(self, replica_id: str, reason: str) -> None:
        """Drops a program with a batch that hangs, with its thread and its group, and loads them again on another thread."""
        hosted = self._take_out(replica_id)
        if hosted is None:
            return
        _log.warning("batch_hangs", program=hosted.program, reason=reason)
        hosted.give_up()
        group = hosted.group
        others = [] if group is None else [each for each in self._hosted.values() if each.group is group]
        if group is not None:
            group.give_up()
        for other in others:
            del self._hosted[other.program]
            other.give_up()
            self._context.post(ReplicaLeft(other.replica_id, f"{hosted.program} of its group {reason}"))
        for each in (hosted, *others):
            self._start_loading(self._programs[each.program])

    def _take_out(self, replica_id: str) -> HostedProgram | HostedCalls | None:
        """Removes a loaded program, and returns it; None if the program has another name by now."""
        for name, hosted in self._hosted.items():
            if hosted.replica_id == replica_id:
                return self._hosted.pop(name)
        return None

    def set_logs(self, config: LogsConfig) -> None:
        """Does nothing: there are no other processes."""

    def start_over(self) -> None:
        """Announces all programs, to a new engine."""
        self._groups.clear()
        for hosted in self._hosted.values():
            hosted.join_again()

    def report(self) -> Mapping[str, int]:
        """Returns how many programs run on the loop now, and how many batches ran on the loop and on threads."""
        hosted = self._hosted.values()
        return {
            "num_programs_inline": sum(each.is_inline for each in hosted),
            "num_batches_inline": sum(each.num_inline for each in hosted),
            "num_batches_on_threads": sum(each.num_on_thread for each in hosted),
            "num_batches_run_again": sum(each.num_run_again for each in hosted),
            **({} if self._context.devices is None else self._context.devices.report()),
            **self._groups.report(),
        }


def _check_is_whole(program: Program) -> None:
    if program.options.plan is not None:
        raise DefinitionError(
            f"program {program.name!r} has the plan {program.options.plan}, whose ranks are separate processes, so it cannot "
            "run in the server's process: serve it on Ray, without --in-process, or without the plan"
        )


def _digests(inputs: Sequence[Hashable]) -> list[bytes]:
    """Returns the digests of inputs, as far as they are known."""
    return [each.digest for each in inputs if isinstance(each, InputsIdentity) and each.digest is not None]
