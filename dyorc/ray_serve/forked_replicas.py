"""Forks replicas' processes on this machine before Serve needs them, and holds them until Serve's replicas adopt them."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import structlog

from dyorc.authoring.program import Program
from dyorc.errors import TransportError
from dyorc.ray_serve.replica_specs import ReplicaSpecs
from dyorc.replica.assignment import Uplink
from dyorc.replica.fork_client import ForkClient, ReplicaHandle

_log = structlog.get_logger("dyorc.launcher")

_ADOPTION_TIMEOUT_S = 60.0
"""A process that no Serve replica adopts for this long, although Serve has started all replicas, is one too many."""
_MAX_REPLACED = 8
"""How many processes that die before they are adopted are replaced."""
_FORK_SERVER_END_S = 8.0
"""How long the fork server may take to end, in addition to the batches' time: it gives its replicas 5 s."""
_END_S = 2.0
"""How long processes may take to end, in addition to their batches' time."""


class _Held(NamedTuple):
    program: str
    since_s: float


class ForkedReplicas:
    """Holds processes until Serve's replicas adopt them; they serve meanwhile. On the event loop.

    Args:
        client: For this machine's fork server. Closed at the end.
        graceful_s: How long a running batch may take when its replica should end.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, client: ForkClient, plans: ReplicaSpecs, graceful_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._plans = plans
        self._graceful_s = graceful_s
        self._clock = clock
        self._held: dict[ReplicaHandle, _Held] = {}
        self._complete_since_s: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_replaced = 0

    async def prepare(self, program: Program, num: int, uplink: Uplink) -> None:
        """Forks processes, which load the program and dial in at once. The next replicas that Serve starts adopt them.

        Programs whose processes depend on what Ray gives their replicas, such as devices, are left to Serve.
        """
        if not self._plans.is_known(program):
            return
        try:
            for _ in range(num):
                assignment = self._plans.assignment(program, uplink)
                handle = await asyncio.to_thread(self._client.fork, assignment, is_adopted=False)
                self._hold(program.name, handle, lambda: self._replace(program, uplink))
        except TransportError as error:  # Serve's replicas will try again, and report it
            _log.warning("not_forked_ahead", program=program.name, error=str(error))

    def scale(self, program: str, num_more: int, uplink: Uplink) -> None:
        """Forks this many more processes of a program; or, if fewer are wanted, releases processes that are not adopted yet."""
        if num_more > 0:
            wanted = next(candidate for candidate in self._plans.programs if candidate.name == program)
            self._prepare_soon(wanted, num_more, uplink)
        else:
            unwanted = self._held_of(program)
            for handle in unwanted[num_more or len(unwanted) :]:
                self._release(handle)

    def drop(self, program: str) -> None:
        """Releases all processes of a program that are not adopted yet."""
        for handle in self._held_of(program):
            self._release(handle)

    @property
    def is_waiting(self) -> bool:
        """Whether there are processes that are not adopted yet."""
        return bool(self._held)

    def release_surplus(self, complete: Collection[str]) -> None:
        """Releases processes that no Serve replica will adopt: all replicas of their programs run, and some forked other
        processes.

        Args:
            complete: Programs whose replicas all run in Serve now.
        """
        now_s = self._clock()
        self._complete_since_s = {program: self._complete_since_s.get(program, now_s) for program in complete}
        for handle, held in list(self._held.items()):
            since_s = max(held.since_s, self._complete_since_s.get(held.program, now_s))
            if now_s - since_s >= _ADOPTION_TIMEOUT_S:
                self._release(handle)

    def _held_of(self, program: str) -> list[ReplicaHandle]:
        return [handle for handle, held in self._held.items() if held.program == program]

    async def close(self) -> None:
        """Ends all processes on this machine that still run, and the fork server. Call it when Serve's replicas have ended."""
        self._num_replaced = _MAX_REPLACED
        await asyncio.gather(*self._tasks)
        for handle in list(self._held):
            self._release(handle)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._client.end_replicas(self._graceful_s + _END_S)
        # A replica that has begun to end accepts no connection; the fork server ends after it, and kills it if it takes too long.
        self._client.close(self._graceful_s + _FORK_SERVER_END_S)

    def _hold(self, program: str, handle: ReplicaHandle, replace: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._held[handle] = _Held(program, self._clock())
        handle.line.connection.setblocking(False)
        loop.add_reader(handle.line.fileno(), self._receive, handle, replace)

    def _receive(self, handle: ReplicaHandle, replace: Callable[[], None]) -> None:
        """Releases a process that a Serve replica has adopted, or that cannot load its program; replaces one that has died."""
        messages = handle.line.receive_ready()
        if messages is None:
            self._release(handle)
            replace()
        elif any(message["kind"] in ("taken", "ended") for message in messages):
            self._release(handle)

    def _replace(self, program: Program, uplink: Uplink) -> None:
        """Forks another process for one that has died. If many die, Serve's replicas do that, which wait in between."""
        if self._num_replaced < _MAX_REPLACED:
            self._num_replaced += 1
            self._prepare_soon(program, 1, uplink)

    def _prepare_soon(self, program: Program, num: int, uplink: Uplink) -> None:
        task = asyncio.get_running_loop().create_task(self.prepare(program, num, uplink))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _release(self, handle: ReplicaHandle) -> None:
        if handle in self._held:
            del self._held[handle]
            asyncio.get_running_loop().remove_reader(handle.line.fileno())
            handle.close()
