"""Compares what came with what may come: failures with the fault that excuses them, jobs and effects with what was accepted, and
what is left with nothing.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import dyorc
from dyorc.errors import DyOrcError
from dyorc.transport.tier_routes import PROBE_BYTES
from tests.deadlines import TIMEOUT_S
from tests.storm.arena_contents import read_arenas
from tests.storm.clients import Ledger, Outcome
from tests.storm.contract import CONNECTION, Fault, Shape, footprint
from tests.storm.kinds import EFFECTS, fault_of

LINGER_S = 0.5
"""For so long after the end of a process, a connection that the kernel gave to it may still turn out to be cut."""
_UNSEEN_S = 0.25
"""A request that a client began to send so long before a signal need not have reached the server."""
_POLL_S = 0.02
_EMPTY_S = 30.0
_NUM_AT_ONCE = 8
_MAX_GROWN = 32
"""Descriptors, or threads, that a process may have more at the end than its kind had at the beginning: pools grow with load."""


@dataclass
class Strike:
    """What came of a fault, or of two together.

    Attributes:
        back_s: How long until every client was answered again; None if that did not come in time.
        failed: Requests that failed meanwhile, by code.
        unexplained: Those among them that nothing excuses.
        longest_s: The longest wait of a client for an answer or an error.
        num_lines: Lines in the log.
    """

    names: list[str]
    began_s: float
    bound_s: float
    back_s: float | None = None
    failed: Counter[str] = field(default_factory=Counter[str])
    unexplained: list[str] = field(default_factory=list[str])
    longest_s: float = 0.0
    num_lines: int = 0

    @property
    def is_late(self) -> bool:
        """Whether service came back later than is promised, or not at all."""
        return self.back_s is None or self.back_s > self.bound_s

    @property
    def share_of_bound(self) -> float:
        """How much of its bound it took until every client was answered again: 1 at the bound, 0 if that never came."""
        return round((self.back_s or 0.0) / self.bound_s, 3)

    def judge(self, outcomes: Sequence[Outcome], faults: Sequence[Fault]) -> None:
        """Looks at requests that ended since it began."""
        for outcome in outcomes:
            self.longest_s = max(self.longest_s, outcome.ended_s - outcome.began_s)
            if outcome.code:
                self.failed[outcome.code] += 1
                is_moved = outcome.code == "effect_lost" and lead_may_move(self.names)
                if not is_moved and not any(excuses(fault, outcome, self.began_s) for fault in faults):
                    self.unexplained.append(
                        f"{' and '.join(self.names)}: client {outcome.client} at {outcome.entrance}, {outcome.kind} of "
                        f"{outcome.number}, begun {outcome.began_s - self.began_s:+.2f} s, ended "
                        f"{outcome.ended_s - self.began_s:+.2f} s: {outcome.code}: {outcome.detail}"
                    )


def lead_may_move(names: Collection[str]) -> bool:
    """Returns whether a standby may lead though the leader lives: it has started while the store was away, so it does not know
    that the lease ended for that reason alone.
    """
    return any(name.endswith(" redis") for name in names) and not {"kill standby", "restart standby"}.isdisjoint(names)


def excuses(fault: Fault, outcome: Outcome, began_s: float) -> bool:
    """Returns whether a request may have failed so because of a fault that began then."""
    if fault.is_graceful and outcome.began_s < began_s - _UNSEEN_S:
        return False
    if outcome.code != CONNECTION:
        return outcome.code in fault.codes
    if outcome.entrance not in fault.cuts:
        return False
    return fault.pids is None or outcome.pid is None or outcome.pid in fault.pids


@dataclass
class Settlement:
    """What the books say at the end.

    Attributes:
        lost: Accepted, and no right end: jobs, or effects of answered requests.
        doubled: Effects that happened twice, jobs that exist twice.
        wrong: Jobs with a wrong result.
        num_jobs: By how they ended.
    """

    lost: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    num_jobs: Counter[str] = field(default_factory=Counter[str])


def settle(shape: Shape, ledger: Ledger) -> Settlement:
    """Follows every accepted job to its end, and counts effects. Nobody asks meanwhile."""
    result = Settlement()
    result.doubled += [f"key {key} was accepted as {len(ids)} jobs" for key, ids in ledger.keys.items() if len(ids) > 1]
    with shape.entrances[0].entered():
        ends = asyncio.run(_ends_of_jobs(shape.entrances[0].url, ledger, result))
    result.num_jobs.update(ends.values())
    _count_effects(shape, ledger, ends, result)
    return result


async def _ends_of_jobs(url: str, ledger: Ledger, result: Settlement) -> dict[str, str]:
    """Returns by id each job's state, or the code of its error."""
    deadline_s = time.monotonic() + TIMEOUT_S
    places = asyncio.Semaphore(_NUM_AT_ONCE)
    async with dyorc.AsyncClient(url) as client:

        async def follow(job_id: str, kind: str, number: int) -> str:
            async with places:
                return await _end_of_job(client, job_id, kind, number, deadline_s, result)

        ends = await asyncio.gather(*(follow(job_id, *job) for job_id, job in ledger.jobs.items()))
    return dict(zip(ledger.jobs, ends, strict=True))


async def _end_of_job(
    client: dyorc.AsyncClient, job_id: str, kind: str, number: int, deadline_s: float, result: Settlement
) -> str:
    name = f"job {job_id}, {kind} of {number}"
    try:
        job = await client.job(job_id)
        answer = await job.result(timeout_s=max(1.0, deadline_s - time.monotonic()))
    except DyOrcError as error:
        if not (kind == "charged" and error.code == "effect_lost"):
            result.lost.append(f"{name}: {error.code}: {error}")
        return error.code
    if fault := fault_of(kind, number, answer):
        result.wrong.append(f"{name}: {fault}")
    return "succeeded"


def _count_effects(shape: Shape, ledger: Ledger, ends: dict[str, str], result: Settlement) -> None:
    lines = {file: _lines(shape, file) for file in EFFECTS.values()}
    jobs = {number: (kind, ends[job_id] == "succeeded") for job_id, (kind, number) in ledger.jobs.items() if kind in EFFECTS}
    for number, (kind, is_answered) in (ledger.effects | jobs).items():
        num_times = lines[EFFECTS[kind]][number]
        if is_answered and not num_times:
            result.lost.append(f"{kind} of {number} was answered, and did not happen")
        if kind == "charged" and num_times > 1:
            result.doubled.append(f"{kind} of {number} happened {num_times} times")


def _lines(shape: Shape, file: str) -> Counter[int]:
    path = shape.folder / file
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


def left_in_memory(shape: Shape) -> list[str]:
    """Returns tensors that nobody frees, and arenas whose owner has gone, while nobody asks. What goes in time does not count."""
    deadline_s = time.monotonic() + _EMPTY_S
    while left := _left(shape):
        if time.monotonic() > deadline_s:
            return left
        time.sleep(_POLL_S)
    return []


def _left(shape: Shape) -> list[str]:
    """Blocks by which other nodes measure how fast they get tensors stay; no request has any of their sizes."""
    if shape.arena_folder is None:
        return []
    living = shape.arena_owners()
    left: list[str] = []
    for arena in read_arenas(str(shape.arena_folder)):
        if arena.pid not in living:
            left.append(f"arena {arena.name} of process {arena.pid}, which has ended")
        sizes = [num_bytes for num_bytes in arena.blocks.values() if num_bytes not in PROBE_BYTES]
        left += [f"{num_bytes} bytes of process {arena.pid}" for num_bytes in sizes]
    return left


def footprints(shape: Shape) -> dict[str, tuple[int, int]]:
    """Returns the most descriptors and threads of a process of each kind."""
    sizes = {kind: [footprint(pid) for pid in pids] for kind, pids in shape.pids().items() if pids}
    return {kind: (max(fds for fds, _ in each), max(threads for _, threads in each)) for kind, each in sizes.items()}


def grown(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> list[str]:
    """Returns which kinds of processes have far more descriptors or threads than at the beginning."""
    return [
        f"a {kind} has {after[kind][at]} {name}, at the beginning {sizes[at]}"
        for kind, sizes in before.items()
        for at, name in enumerate(("descriptors", "threads"))
        if kind in after and after[kind][at] > sizes[at] + _MAX_GROWN
    ]
