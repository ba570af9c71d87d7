"""Has replicas' processes forked on this machine before Serve asks for them, and holds them until Serve's replicas do."""

import asyncio
from collections.abc import Callable

import structlog

from dyorc.authoring.program import Program
from dyorc.errors import TransportError
from dyorc.launcher.plans import Plans
from dyorc.replica.assignment import Uplink
from dyorc.replica.fork_client import ForkClient
from dyorc.replica.holder import Holder

_log = structlog.get_logger("dyorc.launcher")

_FIRST_ADOPTION_TIMEOUT_S, _ADOPTION_TIMEOUT_S = 300.0, 60.0
"""A process that no Serve replica wants for so long is let go; the first value holds until Serve has been asked for replicas."""
_MAX_REPLACED = 8
"""So many processes that die before they are adopted are replaced."""
_FORK_SERVER_END_S = 8.0
"""How long the fork server may take to end, beyond that: it gives its replicas 5 s."""
_END_S = 2.0
"""How long processes may take to end, beyond what their batches take."""


class ForkedReplicas:
    """Holds processes. On the event loop.

    Args:
        client: Of this machine's fork server. Closed at the end.
        graceful_s: How long a running batch may take when its replica should end.
    """

    def __init__(self, client: ForkClient, plans: Plans, graceful_s: float) -> None:
        self._client = client
        self._plans = plans
        self._graceful_s = graceful_s
        self._held: dict[Holder, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_replaced = 0
        self._timeout_s = _FIRST_ADOPTION_TIMEOUT_S

    async def prepare(self, program: Program, num: int, uplink: Uplink) -> None:
        """Has processes forked, which load the program and dial in at once. The next replicas that Serve starts adopt them.

        Programs whose processes depend on what Ray gives their replicas, like devices, are left to Serve.
        """
        if not self._plans.is_known(program):
            return
        try:
            for _ in range(num):
                assignment = self._plans.assignment(program, uplink)
                holder = await asyncio.to_thread(self._client.fork, assignment, is_adopted=False)
                self._hold(program.name, holder, lambda: self._replace(program, uplink))
        except TransportError as error:  # Serve's replicas will try again, and say so
            _log.warning("not_forked_ahead", program=program.name, error=str(error))

    def scale(self, program: str, num_more: int, uplink: Uplink) -> None:
        """Has so many more processes of a program forked; or, if fewer are wanted, lets go of those that Serve does not hold."""
        if num_more > 0:
            found = next(one for one in self._plans.programs if one.name == program)
            self._prepare_soon(found, num_more, uplink)
        else:
            unwanted = [holder for holder, name in self._held.items() if name == program]
            for holder in unwanted[num_more or len(unwanted) :]:
                self._let_go(holder)

    def drop(self, program: str) -> None:
        """Lets go of all processes of a program that Serve does not hold."""
        for holder in [holder for holder, name in self._held.items() if name == program]:
            self._let_go(holder)

    def hand_over(self) -> None:
        """Serve has been asked for replicas. A process that it does not adopt soon is one too many: a replica forked its own."""
        self._timeout_s = _ADOPTION_TIMEOUT_S
        for holder in self._held:
            asyncio.get_running_loop().call_later(self._timeout_s, self._let_go, holder)

    async def close(self) -> None:
        """Ends all processes on this machine that still run, and the fork server. Call it when Serve's replicas have ended."""
        self._num_replaced = _MAX_REPLACED
        await asyncio.gather(*self._tasks)
        for holder in list(self._held):
            self._let_go(holder)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._client.end_replicas(self._graceful_s + _END_S)
        # One that has begun to end hears nobody any more; the fork server ends after it, and kills it if it takes too long.
        self._client.close(self._graceful_s + _FORK_SERVER_END_S)

    def _hold(self, program: str, holder: Holder, replace: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._held[holder] = program
        holder.line.connection.setblocking(False)
        loop.add_reader(holder.line.fileno(), self._hear, holder, replace)
        loop.call_later(self._timeout_s, self._let_go, holder)

    def _hear(self, holder: Holder, replace: Callable[[], None]) -> None:
        """Lets go of a process that a Serve replica has adopted, or that cannot load its program; replaces one that has died."""
        messages = holder.line.take_in()
        if messages is None:
            self._let_go(holder)
            replace()
        elif any(message["kind"] in ("taken", "ended") for message in messages):
            self._let_go(holder)

    def _replace(self, program: Program, uplink: Uplink) -> None:
        """Has another forked for one that has died. If many do, that is left to Serve's replicas, which wait in between."""
        if self._num_replaced < _MAX_REPLACED:
            self._num_replaced += 1
            self._prepare_soon(program, 1, uplink)

    def _prepare_soon(self, program: Program, num: int, uplink: Uplink) -> None:
        task = asyncio.get_running_loop().create_task(self.prepare(program, num, uplink))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _let_go(self, holder: Holder) -> None:
        if holder in self._held:
            del self._held[holder]
            asyncio.get_running_loop().remove_reader(holder.line.fileno())
            holder.close()
