"""Faults, drawn from the seed: processes die and stop, connections break, clocks jump, the disk fails."""

from collections import Counter
from collections.abc import Callable

from tests.whole_server.disk import BROKEN, FULL, SLOW, Disk
from tests.whole_server.explanations import Fault
from tests.whole_server.outside import MOMENTS
from tests.whole_server.servers import Place, Troupe
from tests.whole_server.world import ProcessState, VirtualProcess, World, current_thread

_MEAN_PAUSE_S = 1.5
_LONGEST_STOP_S = 6.0
_LONGEST_PARTITION_S = 4.0
_LONGEST_JUMP_S = 20.0
_LONGEST_DISK_TROUBLE_S = 3.0
_EFFECT_RATIO, _COMMIT_RATIO = 0.1, 0.01
"""How often a process dies or stops right after an effect, or a commit."""
_HANG_UP_RATIO = 0.02
"""How often a gateway's clients are cut off right after a commit."""
_MOMENT_S = 0.01
_START_RATIO, _START_S = 0.15, 0.6
"""How often a replica's process dies or stops soon after its start, and how soon."""
_REPLICA_RATIO = 0.5
"""How often a replica is struck instead of a server, where there are any."""


class FaultPlan:
    """Lets faults happen until `until_s`; then everything is mended.

    Args:
        has_theme: Whether rare paths are the only faults of this seed.

    Attributes:
        counts: How often each kind happened.
        happened: All of them, in their order.
    """

    def __init__(self, world: World, troupe: Troupe, disk: Disk, until_s: float, *, has_theme: bool) -> None:
        self._world = world
        self._troupe = troupe
        self._disk = disk
        self._until_s = until_s
        rate = world.chance.choice((0.0, 0.5, 1.0, 2.0))
        self._rate = 0.0 if has_theme else rate
        self.counts: Counter[str] = Counter()
        self.happened: list[Fault] = []

    @property
    def is_calm(self) -> bool:
        """Whether it makes no faults."""
        return not self._rate

    def begin(self) -> None:
        """Begins."""
        self._world.call_later(self._until_s - self._world.elapsed_s, self._mend)
        if self._rate:
            self._plan_next()
            MOMENTS.append(lambda: self._moment(_EFFECT_RATIO))
            self._disk.committed = self._after_commit
            self._troupe.forks.started = self._start_badly

    def _plan_next(self) -> None:
        self._world.call_later(self._world.chance.expovariate(self._rate / _MEAN_PAUSE_S), self._strike)

    def _strike(self) -> None:
        if self._world.elapsed_s >= self._until_s:
            return
        kinds: list[Callable[[], str]] = [
            self._kill, self._kill, self._stop, self._leave, self._terminate, self._cut, self._part, self._jump, self._spoil,
        ]  # fmt: skip
        kind = self._world.chance.choice(kinds)()
        self.count(kind)
        self._plan_next()

    def _moment(self, ratio: float) -> None:
        """Now and then lets the running process, or another, die or stop soon: between an effect or a commit and what follows."""
        chance, thread = self._world.chance, current_thread()
        if thread is None or chance.random() >= ratio or self._world.elapsed_s >= self._until_s:
            return
        if thread.process in self._victims():
            victim = chance.choice((thread.process, self._victim()))
            strike = chance.choice((self._kill, self._kill, self._stop, self._leave))
            self._world.call_later(chance.uniform(0, _MOMENT_S), lambda: self.count(strike(victim)))

    def _start_badly(self, process: VirtualProcess) -> None:
        """Now and then lets a replica die or stop while it starts or loads its program."""
        chance = self._world.chance
        if self._world.elapsed_s < self._until_s and chance.random() < _START_RATIO:
            strike = chance.choice((self._kill, self._stop))
            self._world.call_later(chance.uniform(0, _START_S), lambda: self.count(strike(process)))

    def _after_commit(self) -> None:
        """Lets a gateway's clients lose the answer to what was just stored, such as a job, or a process die."""
        self._moment(_COMMIT_RATIO)
        thread = current_thread()
        if thread is None or self._world.elapsed_s >= self._until_s or self._world.chance.random() >= _HANG_UP_RATIO:
            return
        process = thread.process
        ends = [end for end in self._troupe.network.ends if end.process is process and not end.is_closed and end.is_http]
        if ends:
            for end in ends:
                self._troupe.network.cut(end)
            self.count("cut clients")

    def count(self, kind: str) -> None:
        """Notes that a fault has just happened; nothing if `kind` is empty."""
        if kind:
            self.counts[kind] += 1
            self.happened.append(Fault(kind, self._world.elapsed_s))

    def _place(self) -> Place:
        return self._world.chance.choice(self._troupe.places)

    def _victims(self) -> list[VirtualProcess]:
        """Returns the processes that may be struck: those of servers, and of replicas."""
        servers = [place.process for place in self._troupe.places if place.process is not None and place.is_up]
        return [*servers, *self._troupe.forks.processes]

    def _victim(self) -> VirtualProcess | None:
        """Returns a server's process or, as often if there are any, a replica's."""
        chance, replicas = self._world.chance, self._troupe.forks.processes
        return chance.choice(replicas) if replicas and chance.random() < _REPLICA_RATIO else self._place().process

    def _kill(self, victim: VirtualProcess | None = None) -> str:
        victim = victim or self._victim()
        if victim is None or victim.state is ProcessState.DEAD:
            return ""
        self._world.kill(victim)
        return f"kill {_kind_of(victim)}"

    def _stop(self, victim: VirtualProcess | None = None) -> str:
        process = victim or self._victim()
        if process is None or process.state is not ProcessState.RUNNING:
            return ""
        stop_s = self._world.chance.uniform(0.1, _LONGEST_STOP_S)
        self._world.log("stops", process=process.name, for_s=round(stop_s, 3))
        self._world.stop(process)
        self._world.call_later(stop_s, lambda: self._world.resume(process))
        return f"stop {_kind_of(process)}"

    def _leave(self, victim: VirtualProcess | None = None) -> str:
        """Lets a replica end in order, as at the end of its node. That explains no error: its batches are finished."""
        replicas = [process for process in self._troupe.forks.processes if process.state is ProcessState.RUNNING]
        process = victim or (self._world.chance.choice(replicas) if replicas else None)
        if process not in replicas:
            return ""
        self._world.log("leaves", process=process.name)
        self._troupe.forks.let_leave(process)
        return "leave replica"

    def _terminate(self) -> str:
        return self._troupe.terminate(self._place())

    def _cut(self) -> str:
        ends = [end for end in self._troupe.network.links if not end.is_closed]
        if not ends:
            return ""
        end = self._world.chance.choice(ends)
        self._world.log("cuts a link", of=end.process.name, to=end.peer.process.name)
        self._troupe.network.cut(end)
        return "cut link"

    def _part(self) -> str:
        one, other = self._victim(), self._place().process
        if one is None or other is None or _kind_of(other) not in ("orchestrator", "redis") or _kind_of(one) == _kind_of(other):
            return ""
        self._world.log("parts", one=one.name, other=other.name)
        self._troupe.network.part(one, other)
        self._world.call_later(self._world.chance.uniform(0.1, _LONGEST_PARTITION_S), self._troupe.network.heal)
        return "partition"

    def _jump(self) -> str:
        jump_s = self._world.chance.uniform(-_LONGEST_JUMP_S, _LONGEST_JUMP_S)
        self._world.log("the wall clock jumps", by_s=round(jump_s, 3))
        self._world.wall_shift_ns += int(jump_s * 1e9)
        return "clock jump"

    def _spoil(self) -> str:
        trouble = self._disk.trouble = self._world.chance.choice((FULL, BROKEN, SLOW))
        self._world.log("the disk is in trouble", trouble=repr(trouble))
        self._world.call_later(self._world.chance.uniform(0.05, _LONGEST_DISK_TROUBLE_S), self._mend_disk)
        return f"disk: {trouble}"

    def _mend_disk(self) -> None:
        self._disk.trouble = ""

    def _mend(self) -> None:
        self._world.log("the faults are over")
        self._mend_disk()
        self._troupe.network.heal()
        for process in self._victims():
            self._world.resume(process)


def _kind_of(process: VirtualProcess) -> str:
    """Returns ``gateway``, ``orchestrator``, ``redis`` or ``replica``."""
    kind = process.name.partition("-")[0]
    return kind if kind in ("gateway", "orchestrator", "redis") else "replica"
