"""`dyorc orchestrator` and `dyorc gateway` that record what they do with leases.

    python -m tests.chaos.recorded_service FILE orchestrator|gateway ...

Nothing else differs from the commands. This puts recorders around the store's leases, a leader's question whether it may act,
and what a gateway uses of a leader's messages. A process also stops itself before it writes what is deployed, if a file asks
for that (`stop_file`). Each line of the records is an `Operation`; one that changes a lease is written when it begins, too,
since a process may be killed before it ends. Times are the machine's monotonic clock, so they order all processes.
"""

import math
import os
import signal
import sys
import time
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.leader_election import leadership_thread
from dyorc.leader_election.leader import Leader
from dyorc.leader_election.leadership import Leadership
from dyorc.store import redis, sqlite
from dyorc.store.lease_store import Lease, LeaseStore
from tests.chaos.services_storm_mistakes import MISTAKES
from tests.histories.operation import Operation

MODULE = "tests.chaos.recorded_service"
ACT, TAKE = "act", "take"
MADE = "RECORDED_MISTAKES"
"""The variable with names of `MISTAKES`, which the process then makes."""
_EVERY_S = 0.02
"""Acts, and messages that are used, come by the thousand. The first after a pause matters."""


class Recorder:
    """Appends operations to a file that several processes share."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._written_s: dict[tuple[str, int], float] = {}

    def write(self, operation: Operation) -> None:
        """Writes one line."""
        os.write(self._descriptor, msgspec.json.encode(operation) + b"\n")

    def note(self, kind: str, fence: int, argument: Any, at_s: float) -> None:
        """Notes that this process acted by a fence, unless it did just before."""
        if at_s - self._written_s.get((kind, fence), 0.0) < _EVERY_S:
            return
        self._written_s[kind, fence] = at_s
        pid = os.getpid()
        operation = Operation(client=pid, kind=kind, subject=f"process {pid}", argument=argument, outcome=["fence", fence])
        operation.began_s = operation.ended_s = at_s
        self.write(operation)


@dataclass
class RecordedLeases:
    """Leases of a store, with a line for each change."""

    inner: AbstractAsyncContextManager[LeaseStore]
    recorder: Recorder

    async def __aenter__(self) -> Self:
        self._leases = await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self.inner.__aexit__(kind, error, trace)

    async def acquire_lease(self, name: str, owner: str, lease_s: float, above: int = 0) -> int | None:
        return await self._recorded("acquire", name, [owner], self._leases.acquire_lease(name, owner, lease_s, above))

    async def renew_lease(self, name: str, owner: str, lease_s: float, held: Lease) -> bool:
        renewed = self._leases.renew_lease(name, owner, lease_s, held)
        return await self._recorded("renew", name, [owner, held.fence], renewed)

    async def release_lease(self, name: str, owner: str, fence: int) -> None:
        await self._recorded("release", name, [owner, fence], self._leases.release_lease(name, owner, fence))

    async def lease(self, name: str) -> Lease:
        return await self._leases.lease(name)

    async def _recorded(self, kind: str, name: str, argument: list[Any], change: Awaitable[Any]) -> Any:
        operation = Operation(client=os.getpid(), kind=kind, subject=name, argument=argument, began_s=time.monotonic())
        operation.ended_s = operation.began_s  # JSON knows no infinity
        self.recorder.write(operation)
        result = await change
        operation.outcome, operation.ended_s = _outcome(kind, result), time.monotonic()
        self.recorder.write(operation)
        return result


def _outcome(kind: str, result: Any) -> list[Any]:
    match kind:
        case "acquire":
            return ["held", ""] if result is None else ["fence", result]
        case "renew":
            return ["ours" if result else "lost", ""]
        case _:
            return ["released", ""]


def read(path: Path) -> list[Operation]:
    """Returns the operations of a file, each once: as it ended, or without an outcome. Vain attempts to acquire are left out."""
    operations: dict[tuple[int, str, float], Operation] = {}
    for line in path.read_bytes().splitlines():
        operation = msgspec.json.decode(line, type=Operation)
        if operation.outcome is None:
            operation.ended_s = math.inf
        operations[operation.client, operation.kind, operation.began_s] = operation
    return [operation for operation in operations.values() if operation.outcome != ["held", ""]]


def record_all(recorder: Recorder) -> None:
    """Puts recorders around the parts of this process."""
    leases_of = leadership_thread.leases_of
    threads: Any = leadership_thread
    threads.leases_of = lambda setting: RecordedLeases(leases_of(setting), recorder)
    _record_acts(recorder)
    _record_taken(recorder)


def stop_file(records: Path) -> Path:
    """Returns the file that asks for a stop; who stops itself removes it."""
    return records.with_name("stop_at_note")


def stop_before_notes(file: Path) -> None:
    """Lets this process stop itself before it writes what is deployed, if a file asks for that."""
    for store in (sqlite.SqliteStore, redis.RedisStore):
        _stop_before_notes(store, file)


def _stop_before_notes(store: Any, file: Path) -> None:
    note = store.note

    def stop_and_note(self: Any, name: str, *values: Any) -> Awaitable[bool]:
        if name.startswith("deployed/") and file.exists():
            file.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return note(self, name, *values)

    store.note = stop_and_note


def _record_acts(recorder: Recorder) -> None:
    leadership: Any = Leadership
    ask = leadership.is_sure.fget

    def is_sure(self: Any) -> bool:
        at_s = time.monotonic()  # before it is asked: then, a stop in between cannot make an act look late
        answer = ask(self)
        if answer:
            recorder.note(ACT, self.fence, self.is_store_away, at_s)
        return answer

    leadership.is_sure = property(is_sure)


def _record_taken(recorder: Recorder) -> None:
    backend: Any = RemoteBackend
    receive = backend._receive
    speaker = Leader(group="", fence=0, address="")

    def receive_from(self: Any, leader: Leader, *rest: Any) -> None:
        nonlocal speaker
        speaker = leader
        receive(self, leader, *rest)

    def taking(take: Any) -> Any:
        def recorded(*args: Any) -> None:
            recorder.note(TAKE, speaker.fence, None, time.monotonic())
            take(*args)

        return recorded

    backend._receive = receive_from
    backend._take_answer, backend._take_part = taking(backend._take_answer), taking(backend._take_part)


def main() -> None:
    """Runs a command of `dyorc` with recorders."""
    from dyorc.cli.main import main as run_command

    for mistake in os.environ.get(MADE, "").split():
        MISTAKES[mistake]()
    record_all(Recorder(Path(sys.argv[1])))
    stop_before_notes(stop_file(Path(sys.argv[1])))
    sys.argv = ["dyorc", *sys.argv[2:]]
    run_command()


if __name__ == "__main__":
    main()
