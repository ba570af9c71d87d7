"""The group of a replica that runs a plan: processes that each hold a part of the module's weights.

The replica *leads* it: it talks to the orchestrator, forms the arguments, and hands each batch to its members, the ranks of the
plan, which compute and talk among themselves (gloo, or NCCL on GPUs). To the engine, it is one replica. A group lives and dies as
a whole: when a member ends, its leader ends, too, and whoever keeps the leader has another group forked; when the leader ends,
its members are killed. The calls that it was running are queued again, like those of any replica that is lost.
"""

import builtins
import contextlib
import os
import select
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dyorc.errors import InvalidInputError, PlanRunError
from dyorc.planner.plan import Inference, Plan
from dyorc.planner.runtime import RankOptions, Ranks
from dyorc.planner.runtime.rank_messages import Wire, wire_over
from dyorc.replica.group_site import GroupSite
from dyorc.transport.peer_process import PeerProcess


class ForkedRank:
    """A member's process, forked by the fork server. See `RankProcess`."""

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
        """Waits until it has ended. Nobody tells how: it is not this process's child."""
        self.process.wait(timeout_s)
        if not self.has_ended:
            raise TimeoutError

    @property
    def has_ended(self) -> bool:
        """Whether it is gone."""
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
        """Forks the members and waits until they have met. From now on, their ends are noticed.

        Raises:
            PlanError: There are not enough devices.
            PlanRunError: One has not started.
            TransportError: None can be forked.
        """
        try:
            self._ranks.start()
        finally:
            self._site.client.close()  # while that is open, the fork server waits for more orders
        self._watching.start()

    def load(self, weights: Path, computed: Mapping[str, Any]) -> None:
        """Has each member read its part of the weights.

        Args:
            weights: The module's file.
            computed: Those that are not in it, whole.
        """
        self._ranks.load(self._plan, computed, weights=weights)

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Answers a batch, given and returned as torch's tensors. What an operation raises is raised here, as the module would.

        Raises:
            InvalidInputError: There are more inputs, or samples, than the plan is for.
        """
        names, num_samples = self._inference.inputs, self._num_samples(inputs)
        try:
            self._ranks.begin_step(dict(zip(names, inputs, strict=True)), num_samples=num_samples, is_guarded=True)
            ran = self._ranks.end_step()
        except PlanRunError as error:
            self._end(str(error))
        if ran.error is not None:
            raise _error_of(*ran.error)
        return tuple(ran.results[name] for name in self._inference.outputs)

    def close(self) -> None:
        """Ends the members."""
        self._is_closing = True
        self._ranks.stop()
        if self._watching.is_alive():
            self._watching.join()  # it looks at the members' descriptors
        for member in self._members:
            member.process.close()

    def _num_samples(self, inputs: Sequence[Any]) -> int:
        found = {int(tensor.shape[0]) for tensor in inputs}
        if len(inputs) != len(self._inference.inputs) or len(found) != 1:
            raise InvalidInputError(
                f"the module was called with inputs of shapes {[list(tensor.shape) for tensor in inputs]}, and its plan takes "
                f"{len(self._inference.inputs)}, each with the samples along its first dimension"
            )
        return found.pop()

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
        """Ends this process. Nobody is told what became of the batch: its calls are queued again."""
        self._site.lost(reason)
        while True:
            threading.Event().wait()


def _error_of(kind: str, text: str) -> Exception:
    found = getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        with contextlib.suppress(TypeError):  # some take more than a text
            return found(text)
    return RuntimeError(f"{kind}: {text}")
