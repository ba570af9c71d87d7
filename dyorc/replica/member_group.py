"""The group of a replica that runs a plan: processes that each hold a part of the module's weights.

The replica *leads* it: it talks to the orchestrator, forms the arguments, and hands each batch to its members, the ranks of the
plan, which compute and talk among themselves (gloo, or NCCL on GPUs). To the engine, it is one replica. A group lives and dies as
a whole: when a member ends, its leader ends, too, and the leader's owner forks another group; when the leader ends,
its members are killed. The calls that it was running are queued again, like those of any replica that is lost.
"""

import builtins
import contextlib
import hashlib
import os
import select
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import structlog

from dyorc.authoring.program import Program
from dyorc.authoring.weights import load_module_by
from dyorc.core.plan_head import read_plan_head
from dyorc.errors import InvalidInputError, PlanError, PlanRunError
from dyorc.planner.plan import Inference, Plan
from dyorc.planner.plan.plan_file import read_plan
from dyorc.planner.runtime import RankOptions, Ranks
from dyorc.planner.runtime.rank_messages import Wire, wire_over
from dyorc.planner.serving import PlannedModule, check_module, computed_weights, inference_of
from dyorc.replica.executor import ProgramExecutor, load_error
from dyorc.replica.fork_client import GroupSite
from dyorc.replica.program_lifecycle import load_and_warm_up
from dyorc.transport.peer_process import PeerProcess


class ForkedRank:
    """A member's process, forked by the fork server; a `RankProcess`."""

    def __init__(self, site: GroupSite, send_timeout_s: float) -> None:
        connection = site.client.fork_member(site.assignment, os.getpid())
        self.process = PeerProcess(connection)
        self.wire: Wire = wire_over(connection, send_timeout_s)

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def kill(self) -> None:
        """Kills it."""
        with contextlib.suppress(ProcessLookupError):
            if self.process.end_descriptor is None:
                os.kill(self.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self.process.end_descriptor, signal.SIGKILL)

    def wait(self, timeout_s: float) -> None:
        """Waits until it has ended. How it ended is unknown: it is not this process's child."""
        self.process.wait(timeout_s)
        if not self.has_ended:
            raise TimeoutError

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        descriptor = self.process.end_descriptor
        return descriptor is None or bool(select.select([descriptor], [], [], 0)[0])


class MemberGroup:
    """Runs batches by a plan. One thread, apart from the one that watches the members."""

    def __init__(self, plan: Plan, inference: Inference, site: GroupSite, options: RankOptions) -> None:
        self._plan = plan
        self._inference = inference
        self._site = site
        self._members: list[ForkedRank] = []
        self._ranks = Ranks(options, self._start_rank)
        self._is_closing = False
        self._watching = threading.Thread(target=self._watch, name="dyorc-group", daemon=True)

    def _start_rank(self, send_timeout_s: float) -> ForkedRank:
        member = ForkedRank(self._site, send_timeout_s)
        self._members.append(member)
        return member

    @property
    def pids(self) -> tuple[int, ...]:
        """The members' processes, by rank."""
        return self._ranks.pids

    def start(self) -> None:
        """Forks the members and waits until they have met. From now on, the end of a member is noticed.

        Raises:
            PlanError: If there are not enough devices.
            PlanRunError: If a member has not started.
            TransportError: If none can be forked.
        """
        try:
            self._ranks.start()
        finally:
            self._site.client.close()  # while it is open, the fork server waits for more requests
        self._watching.start()

    def load(self, weights: Path, computed: Mapping[str, Any]) -> None:
        """Makes each member read its part of the weights.

        Args:
            weights: The module's file.
            computed: The weights that are not in it, whole.
        """
        self._ranks.load(self._plan, computed, weights=weights)

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Runs a batch of torch tensors, and returns its results. Raises what an operation raises, as the module would.

        Raises:
            InvalidInputError: If there are more inputs, or samples, than the plan allows.
        """
        names, num_samples = self._inference.inputs, self._num_samples(inputs)
        try:
            self._ranks.begin_step(dict(zip(names, inputs, strict=True)), num_samples=num_samples, is_guarded=True)
            step = self._ranks.end_step()
        except PlanRunError as error:
            self._end(str(error))
        if step.error is not None:
            raise _error_of(*step.error)
        return tuple(step.results[name] for name in self._inference.outputs)

    def close(self) -> None:
        """Ends the members."""
        self._is_closing = True
        self._ranks.stop()
        if self._watching.is_alive():
            self._watching.join()  # it looks at the members' descriptors
        for member in self._members:
            member.process.close()

    def _num_samples(self, inputs: Sequence[Any]) -> int:
        nums = {int(tensor.shape[0]) for tensor in inputs}
        if len(inputs) != len(self._inference.inputs) or len(nums) != 1:
            raise InvalidInputError(
                f"the module was called with inputs of shapes {[list(tensor.shape) for tensor in inputs]}, and its plan takes "
                f"{len(self._inference.inputs)}, each with the samples along its first dimension"
            )
        return nums.pop()

    def _watch(self) -> None:
        """Notices when a member ends, whether or not a batch is running."""
        descriptors = {m.process.end_descriptor: rank for rank, m in enumerate(self._members) if m.process.end_descriptor}
        if not descriptors:
            return
        ready = select.select(list(descriptors), [], [])[0]
        if not self._is_closing:
            rank = descriptors[ready[0]]
            self._site.lost(f"rank {rank} of its group is gone: {self._members[rank].process.ending().reason}")

    def _end(self, reason: str) -> NoReturn:
        """Ends this process without answering the batch: its calls are queued again."""
        self._site.lost(reason)
        while True:
            threading.Event().wait()


def _error_of(kind: str, text: str) -> Exception:
    error_class = getattr(builtins, kind, None)
    if isinstance(error_class, type) and issubclass(error_class, Exception):
        with contextlib.suppress(TypeError):  # some take more than a text
            return error_class(text)
    return RuntimeError(f"{kind}: {text}")


_log = structlog.get_logger("dyorc.replica")


def load_planned(program: Program, site: GroupSite) -> tuple[ProgramExecutor, MemberGroup]:
    """Loads a program that has a plan: its module is split among the members of a group, everything else stays in the replica.

    Raises:
        ProgramLoadError: If it cannot be loaded, or its plan is for another module.
    """
    try:
        loading = _Loading(program, site)
    except (OSError, PlanError) as error:
        raise load_error(program.name, error) from error
    token = load_module_by.set(loading.load_module)
    try:
        executor = load_and_warm_up(program)
        return executor, loading.group
    except PlanError as error:
        loading.close()
        raise load_error(program.name, error) from error
    except BaseException:
        loading.close()
        raise
    finally:
        load_module_by.reset(token)


class _Loading:
    def __init__(self, program: Program, site: GroupSite) -> None:
        path = program.options.plan or ""
        head = read_plan_head(path)
        self._plan = read_plan(path)
        self._inference = inference_of(self._plan)
        checked = f"{site.assignment.key}|{head.digest}"
        self._note = Path(site.client.folder) / f"checked.{hashlib.sha256(checked.encode()).hexdigest()[:32]}"
        self._site = site
        self._options = RankOptions(
            num_ranks=self._plan.num_ranks,
            device="cuda" if program.options.num_gpus else "cpu",
            timeout_s=program.options.execution_timeout_s,
            folder=site.client.folder,
        )
        self._path = path
        self._group: MemberGroup | None = None

    def load_module(self, make: Callable[[], Any], path: Path, device: str) -> Any | None:
        """Loads a module in the group, if it is the first; None for the program's other modules, which load as usual."""
        if self._group is not None:
            return None
        self._group = MemberGroup(self._plan, self._inference, self._site, self._options)
        try:
            computed = computed_weights(self._plan, make, path)
            self._check(make)
        except PlanError as error:
            raise PlanError(f"the plan {self._path} does not fit: {error}") from error
        self._group.start()
        self._group.load(path, computed)
        _log.info("group_started", pids=self._group.pids, plan=self._path)
        return PlannedModule(self._inference, self._group.run)

    def _check(self, make: Callable[[], Any]) -> None:
        """Captures the module and compares it with the planned one, once per server and plan, since that takes seconds."""
        if not self._note.exists():
            check_module(self._plan, make)
            self._note.touch()

    @property
    def group(self) -> MemberGroup:
        """The group.

        Raises:
            PlanError: If the program did not load a module that can be split.
        """
        if self._group is None:
            raise PlanError(
                f"it has the plan {self._path}, but loads no module with dyorc.load_module, and a plan splits such a module"
            )
        return self._group

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
