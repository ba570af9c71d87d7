"""Processes that hold residents: which replicas are in them, what they hold, and how much room is left.

The plain programs of a process share a device, so one of their batches runs at a time.

A process counts the bytes of all residents that are leased. A *chain* is what one task keeps there: the next resident of a loop
takes the place of the last. A new chain begins only where it is expected to fit (`room_for`), so that chains that have begun can
go on. If they grow beyond the limit nevertheless, those of the youngest request are *evicted*: dropped, and computed again when
there is room (`youngest`).
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import msgspec

from dyorc.core.tensor import BlockId, DType, TensorRef
from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.engine_statistics import EngineStatistics
from dyorc.engine.estimators import Average
from dyorc.engine.events import ReplicaJoined
from dyorc.engine.model.program_call import Call
from dyorc.engine.model.request_tree import Request, Task
from dyorc.engine.request_trace import TraceNote
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Replica


class DropReason(Enum):
    """Why a resident is dropped that is still needed. All are made again."""

    EVICTED = "evicted"
    """Others need its room."""
    MOVED = "moved"
    """It is needed in another process."""
    OVERWRITTEN = "overwritten"
    """A call has changed it, as it was declared to."""


class Resident(msgspec.Struct, frozen=True, gc=False, eq=False):
    """An object in a process: the call that made it, as its task's journal has it, and its size."""

    call: Call
    task: Task
    num_bytes: int


class Process:
    """A process in which programs of one group run and hand residents to each other.

    Attributes:
        replica_ids: The replicas in it, also those that are parked.
        replicas: Those that are not parked, by id.
        parked: The programs whose replicas here are parked.
        residents: What it holds, as far as it is leased.
        num_bytes: Their size together.
        limit: How many bytes it should hold at most; None: any number.
        chain_bytes: How many bytes a chain of its group comes to; all processes of a group share it.
        has_culprit: Whether a batch was running when one of its replicas was lost; what it held then counts against no other.
        has_hung: Whether one of its batches ran for too long: the batches of its other replicas did no harm.
        last_batch: The latest batch of each of its programs: that which ran longest ago goes first.
    """

    __slots__ = (
        "chain_bytes", "has_culprit", "has_hung", "last_batch", "limit", "name", "num_bytes", "parked", "replica_ids", "replicas",
        "residents",
    )  # fmt: skip

    def __init__(self, name: str, chain_bytes: Average) -> None:
        self.name = name
        self.chain_bytes = chain_bytes
        self.replica_ids: set[str] = set()
        self.replicas: dict[str, Replica] = {}
        self.parked: set[str] = set()
        self.residents: dict[BlockId, Resident] = {}
        self.num_bytes = 0
        self.limit: int | None = None
        self.has_culprit = self.has_hung = False
        self.last_batch: dict[str, int] = {}

    @property
    def is_free(self) -> bool:
        """Whether no batch of a plain program runs in it."""
        return not any(replica.batches for replica in self.replicas.values() if replica.pool.ongoing is None)

    @property
    def is_leaving(self) -> bool:
        """Whether it takes no new chains, because one of its replicas is to be parked or will end."""
        return any(replica.is_surplus or replica.is_leaving for replica in self.replicas.values())

    @property
    def is_whole(self) -> bool:
        """Whether chains can go on in it: all its programs are loaded, and none will leave."""
        return not self.parked and not self.is_leaving

    def blocks_in_use(self) -> set[BlockId]:
        """Returns the residents that batches read now."""
        return {block for replica in self.replicas.values() for batch in replica.batches.values() for block in batch.blocks}

    def bytes_by_task(self) -> dict[Task, int]:
        """Returns what each chain comes to now."""
        num_bytes: dict[Task, int] = {}
        for resident in self.residents.values():
            num_bytes[resident.task] = num_bytes.get(resident.task, 0) + resident.num_bytes
        return num_bytes

    def requests(self) -> set[Request]:
        """Returns the requests that have residents here."""
        return {resident.task.request for resident in self.residents.values()}

    def room_for(self, own: Task, num_bytes: int) -> int:
        """Returns how many new chains fit, if those that have begun need as much as they ever did, and no less than others; at
        least one if nothing is here.

        Args:
            own: The task of the first of them.
            num_bytes: What its first resident comes to.
        """
        if self.limit is None:
            return 2**30
        held = self.bytes_by_task()
        needs = [task.residents.most_bytes for task in held]
        usual = max(int(self.chain_bytes.value), sum(needs) // len(needs) if needs else 0)
        begun = sum(now if task is own else max(task.residents.most_bytes, usual) for task, now in held.items())
        expected = max(1, max(own.residents.most_bytes, usual) - held.get(own, 0), num_bytes)
        number = (self.limit - begun) // expected
        return number if number > 0 else int(not self.residents)

    def num_fitting(self, first: int, added: Sequence[int]) -> int:
        """Returns how many calls can run together so that what they add fits; 0 if not even the first.

        Args:
            first: What the first of them adds, in bytes.
            added: What each adds.
        """
        if self.limit is None:
            return 2**30
        room = self.limit - self.num_bytes
        if sum(added) <= room:
            return 2**30
        return max(1, room // max(added)) if first <= room else 0

    @property
    def is_full(self) -> bool:
        """Whether it holds more than it should."""
        return self.limit is not None and self.num_bytes > self.limit

    def youngest(self, but: Request | None = None, *, is_urgent: bool = False) -> list[BlockId]:
        """Returns the residents of the request that gives up its own next: the youngest, least urgent; never the oldest, nor one
        that a batch reads. Empty if there is none.

        Args:
            but: A request for which room is made; it is spared, and so are older ones.
            is_urgent: Whether older ones are not spared, because they wait for it.
        """
        in_use = {self.residents[block].task.request for block in self.blocks_in_use() if block in self.residents}
        by_age = sorted(self.requests(), key=lambda request: request.context.order)
        if but is None:
            by_age = by_age[1:]
        elif is_urgent:
            by_age = [request for request in by_age if request is not but]
        else:
            by_age = [request for request in by_age if request.context.order > but.context.order]
        for request in reversed(by_age):
            if request not in in_use:
                return [block for block, resident in self.residents.items() if resident.task.request is request]
        return []

    # Busy and free

    def batch_sent(self, replica: Replica, batch_id: int) -> None:
        """Makes the other plain programs wait for a batch."""
        self.last_batch[replica.pool.program.name] = batch_id
        if replica.pool.ongoing is None:
            for other in self.replicas.values():
                if other is not replica and other.pool.ongoing is None:
                    other.pool.leave_idle(other)

    def freed(self) -> Iterator[str]:
        """Lets all plain programs take the next batch, if none runs. Yields their names."""
        if not self.is_free:
            return
        for replica in self.replicas.values():
            pool = replica.pool
            if pool.ongoing is None and replica.replica_id in pool.replicas:
                pool.set_idle(replica)
            yield pool.program.name


class Processes:
    """All processes that hold residents. A process is there from the first of its replicas to the last.

    Attributes:
        by_name: The processes.
    """

    def __init__(self, leases: BlockLeases, statistics: EngineStatistics) -> None:
        self._leases = leases
        self._statistics = statistics
        self._of_replica: dict[str, Process] = {}
        self._chain_bytes: dict[str, Average] = {}
        self.by_name: dict[str, Process] = {}

    def join(self, event: ReplicaJoined, pool: ReplicaPool) -> Process | None:
        """Returns the process of a replica that joins; None if its program neither has residents nor is in a group."""
        program = pool.program
        if not pool.has_process:
            return None
        name = event.process or event.replica_id
        process = self.by_name.get(name)
        if process is None:
            average = self._chain_bytes.setdefault(program.group, Average())
            process = self.by_name[name] = Process(name, average)
            self._leases.holder_joined(name)
        process.replica_ids.add(event.replica_id)
        process.parked.discard(program.name)
        process.has_culprit = process.has_hung = False
        limits = [limit for limit in (process.limit, program.options.max_resident_bytes) if limit is not None]
        process.limit = min(limits, default=None)
        self._of_replica[event.replica_id] = process
        return process

    def forget_group(self, group: str) -> None:
        """Forgets what chains of a group come to, because its last program was removed."""
        self._chain_bytes.pop(group, None)

    def leave(self, replica_id: str) -> bool:
        """Removes a replica that is gone, parked or not. Returns whether residents were lost with it."""
        process = self._of_replica.pop(replica_id, None)
        if process is None:
            return False
        process.replica_ids.discard(replica_id)
        process.replicas.pop(replica_id, None)
        if process.replica_ids:
            return False
        del self.by_name[process.name]
        for block, resident in list(process.residents.items()):
            resident.call.num_losses -= process.has_culprit
            self._remove(process, block)
        return self._leases.holder_left(process.name)

    def whole_for(self, pool: ReplicaPool) -> str:
        """Returns a process in which the chains of a program can go on, if there are some in which they cannot; else ""."""
        here = [replica.process for replica in pool.replicas.values() if replica.process is not None]
        group = pool.program.group
        is_split = any(
            process.parked
            for process in self.by_name.values()
            if any(replica.pool.program.group == group for replica in process.replicas.values())
        )
        whole = [process for process in here if process.is_whole] if is_split else []
        return min(whole, key=lambda process: (process.num_bytes, process.name)).name if whole else ""

    # Homes of tasks whose residents meet

    def home_of(self, task: Task, pool: ReplicaPool) -> str:
        """Returns where the residents of a task that meet are brought together; empty if none have met yet, or that process has
        gone or is about to, or can no longer run the program while another can."""
        name = task.residents.homes.get(pool.program.group, "")
        return name if self._can_be_home(name, pool) else ""

    def _can_be_home(self, name: str, pool: ReplicaPool) -> bool:
        process = self.by_name.get(name)
        if process is None or any(replica.is_leaving for replica in process.replicas.values()):
            return False
        return pool.program.name not in process.parked or not self.whole_for(pool)

    def bring_together(self, task: Task, pool: ReplicaPool, residents: Sequence[TensorRef]) -> str:
        """Returns the home of a task. If it has none, it is chosen now: where most of `residents` lie, which meet in a call.

        It stays the same until it has gone or the task gave room to another, and residents move only there, so each moves once.
        """
        home = self.home_of(task, pool)
        if not home:
            num_bytes: dict[str, int] = {}
            for tensor in residents:
                num_bytes[tensor.holder] = num_bytes.get(tensor.holder, 0) + tensor.num_bytes
            fit = [holder for holder in num_bytes if self._can_be_home(holder, pool)]
            most = max(fit or num_bytes, key=lambda holder: (num_bytes[holder], holder))
            home = most if fit else self.whole_for(pool) or most
            task.residents.homes[pool.program.group] = home
        return home

    def leave_homes(self, blocks: Iterable[BlockId]) -> None:
        """Lets the tasks of residents that give room choose new homes, for these may have none for them soon."""
        for block in blocks:
            process = self.by_name.get(block[0])
            if process is not None and block in process.residents:
                process.residents[block].task.residents.homes = {}

    # What they hold

    def add(self, process: Process, call: Call, outputs: Iterable[TensorRef]) -> None:
        """Counts the residents that a call has left."""
        restoration = call.restores
        producer = call if restoration is None else restoration.future.producer
        task = call.segment.task
        residents = task.residents
        for tensor in outputs:
            if tensor.dtype is DType.RESIDENT and isinstance(producer, Call):
                process.residents[tensor.holder, tensor.block] = Resident(producer, task, tensor.num_bytes)
                process.num_bytes += tensor.num_bytes
                residents.number += 1
                residents.num_bytes += tensor.num_bytes
                residents.need(residents.num_bytes)

    def forget(self, blocks: Iterable[BlockId]) -> list[Process]:
        """Stops counting residents that were released. Returns the processes that have more room now."""
        processes: dict[Process, None] = {}
        for block in blocks:
            process = self.by_name.get(block[0])
            if process is not None and block in process.residents:
                task = self._remove(process, block)
                processes[process] = None
                if not task.residents.number:
                    process.chain_bytes.add(task.residents.most_bytes)
        return list(processes)

    def _remove(self, process: Process, block: BlockId) -> Task:
        resident = process.residents.pop(block)
        process.num_bytes -= resident.num_bytes
        resident.task.residents.number -= 1
        resident.task.residents.num_bytes -= resident.num_bytes
        return resident.task

    def evict(self, blocks: Iterable[BlockId], reason: DropReason, now_ns: int) -> None:
        """Drops residents, to be computed again when they are needed. That is no failure: it does not count as a loss."""
        in_use = {block for process in self.by_name.values() for block in process.blocks_in_use()}
        for block in blocks:
            process = self.by_name.get(block[0])
            resident = None if process is None else process.residents.get(block)
            if process is None or resident is None:
                continue
            resident.call.num_losses -= 1
            if (trace := resident.call.trace) is not None and trace.dropped != reason.value:
                trace.dropped = reason.value
                if reason is DropReason.EVICTED and (story := resident.call.context.story) is not None:
                    story.note(TraceNote(now_ns, "evicted", resident.call.callee.name))
            if reason is not DropReason.OVERWRITTEN:
                self._statistics.of_program(resident.call.callee.name).num_evicted += 1
            if block in in_use:
                self._leases.lose([block])  # its batch may go on reading
            else:
                self._remove(process, block)
                self._leases.evict(block)

    def report(self, pool: ReplicaPool) -> dict[str, Any]:
        """Returns what a program holds, in all processes and in each, as plain values. Cost: looks at all residents."""
        name = pool.program.name
        held = {
            process.name: [each.num_bytes for each in process.residents.values() if each.call.callee.name == name]
            for process in self.by_name.values()
            if any(replica.pool is pool for replica in process.replicas.values())
        }
        return {
            "num_residents": sum(map(len, held.values())),
            "resident_bytes": sum(map(sum, held.values())),
            "num_evicted": pool.record.num_evicted,
            "num_rebuilt": pool.record.num_rebuilt,
            "processes": {
                process: {"num_residents": len(sizes), "resident_bytes": sum(sizes)} for process, sizes in held.items()
            },
        }
