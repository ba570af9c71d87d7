"""A replica's copy of its program: parked without weights, or loaded."""

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from dyorc.authoring.call_style import CallStyle
from dyorc.authoring.program import Program
from dyorc.errors import ProgramLoadError
from dyorc.replica.assignment import Identity
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.fork_client import GroupSite
from dyorc.replica.ongoing_calls import load_on
from dyorc.replica.program_lifecycle import free_memory, load_and_warm_up
from dyorc.replica.program_loop import ProgramLoop
from dyorc.replica.program_loops import ProgramLoops
from dyorc.system import extras
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.transport.messages import LoadFailure, Parked, ReplicaHello
from dyorc.transport.tiers import TensorHolder

if TYPE_CHECKING:
    from dyorc.replica.member_group import MemberGroup

_log = structlog.get_logger("dyorc.replica")

_LOOP_END_S = 5.0
"""How long the calls on a program's loop may take to end."""


@dataclass
class ProgramCopy:
    """The program, and what the replica reports of itself.

    Attributes:
        plan: A digest of its code and options.
        start_s: How long it took from the start of the process until the program was imported.
        executor: The loaded program; None while it is parked.
        load_s: How long the last loading took.
        spans: Where spans of the program's code go; None if nothing is traced.
        site: Where members come from, if the program has a plan.
        group: The members that run it; None while it is parked, and without a plan.
        loop: Where it runs, if it waits or yields; None while it is parked.
        loops: Where that is from; other programs of its process may use it, too.
    """

    program: Program
    identity: Identity
    holder: TensorHolder
    plan: str
    start_s: float
    executor: ProgramExecutor | None = None
    load_s: float = 0.0
    spans: ProgramSpans | None = None
    site: GroupSite | None = None
    group: "MemberGroup | None" = None
    loop: ProgramLoop | None = None
    loops: ProgramLoops = field(default_factory=ProgramLoops)

    def introduction(self, fence: int = 0) -> ReplicaHello | Parked:
        """Returns the message that announces the replica in its present state.

        Args:
            fence: The highest that it knows.
        """
        identity, pid = self.identity, os.getpid()
        name, program = identity.replica_id, identity.program
        num_cores = identity.num_cores if self.program.max_ongoing == 1 else 0  # several at once mostly wait
        if self.executor is None:
            start_s, device = self.start_s, identity.device
            return Parked(
                name, program, pid, self.holder, num_cores=num_cores, start_s=start_s, device=device, plan=self.plan, fence=fence,
                process=identity.process,
            )  # fmt: skip
        members = () if self.group is None else self.group.pids
        return ReplicaHello(
            name, program, pid, self.holder, num_cores=num_cores, load_s=self.load_s, plan=self.plan, fence=fence,
            members=members, process=identity.process,
        )  # fmt: skip

    def warm(self) -> LoadFailure | None:
        """Loads the program, unless it is loaded. If that fails, returns the reason, and the copy stays parked."""
        if self.executor is not None:
            return None
        started_s = time.monotonic()
        try:
            self.executor = self._load()
            self.executor.trace_by(self.spans)
        except ProgramLoadError as error:
            failure = failure_of(error)
        else:
            self.load_s = time.monotonic() - started_s
            return None
        self.stop_loop()
        free_memory()  # once nothing refers to what was loaded in part
        return failure

    @property
    def is_ongoing(self) -> bool:
        """Whether it waits or yields, so that several batches run side by side."""
        return self.program.style is not CallStyle.PLAIN

    def _load(self) -> ProgramExecutor:
        if self.is_ongoing:
            self.loop = self.loops.open(self.program)
            return load_on(self.loop, self.program).result()
        if self.program.options.plan is None or self.site is None:
            return load_and_warm_up(self.program)
        extras.require("torch", f"the plan of program {self.program.name!r}")
        from dyorc.replica.member_group import load_planned

        executor, self.group = load_planned(self.program, self.site)
        return executor

    def park(self) -> None:
        """Drops the program and frees its memory."""
        self.executor = None
        if self.group is not None:
            self.group.close()
            self.group = None
        self.stop_loop()
        free_memory()

    def stop_loop(self) -> None:
        """Ends what still runs on its loop, if it has one: the ``finally`` blocks of its calls run, for a while. It goes on
        if other programs use it.
        """
        if self.loop is not None:
            if self.loops.close(self.loop):
                self.loop.join(_LOOP_END_S)
                if self.loop.is_alive:
                    _log.warning("program_hangs", program=self.program.name)
            self.loop = None


def failure_of(error: ProgramLoadError) -> LoadFailure:
    """Returns the message that reports a program that cannot be loaded."""
    return LoadFailure(error.program, error.error_type, error.message, error.remote_traceback)
