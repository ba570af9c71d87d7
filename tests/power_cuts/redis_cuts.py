"""Power cuts of the machine of a real Redis: what its append-only file holds then is given to another one, which starts on it."""

import asyncio
import os
import random
import shutil
from collections.abc import Sequence

from dyorc.store.redis import RedisStore
from tests.power_cuts.cuts import Verdict, run_workload, work_folder
from tests.power_cuts.disk import Disk
from tests.power_cuts.file_log import FileLog, Step, StepKind
from tests.power_cuts.marks import Expectations
from tests.power_cuts.recovery import wrong_after_recovery, wrong_values
from tests.redis_server import RedisServer

_ENDED_LEASE_S = 0.001
"""In Redis, who looks for ended leases says how long they last."""


def record_redis(appendfsync: str, num_jobs: int) -> tuple[Disk, list[Step]]:
    """Returns the disk when Redis had started, and what it did with its files while two servers used it.

    Args:
        appendfsync: As Redis' setting: ``always`` or ``everysec``.
    """
    with work_folder() as work:
        log = FileLog(work)
        with RedisServer(log.folder, appendfsync, {**os.environ, **log.environment}) as server:
            disk, num_before = Disk.of(log.folder, is_in_order=True), len(log.steps())
            run_workload(log, ("left", "right"), server.url, num_jobs)
        return disk, log.steps()[num_before:]


async def _wrong_in_redis(url: str, expected: Expectations, may_be_lost: bool) -> list[str]:
    async with RedisStore(url) as store:
        wrong = await wrong_values(store, expected, may_be_lost=may_be_lost)
        return wrong + await wrong_after_recovery(store, _ENDED_LEASE_S)


def try_redis_cuts(start: Disk, steps: Sequence[Step], num_cuts: int, seed: int, *, may_be_lost: bool) -> Verdict:
    """Cuts the power at random places, and looks what a Redis has that starts again.

    Args:
        may_be_lost: Whether acknowledged changes may be missing.
    """
    chance = random.Random(seed)
    places = sorted(chance.randrange(len(steps) + 1) for _ in range(num_cuts))
    verdict, disk, expected, at = Verdict(), start.copy(), Expectations(), 0
    with work_folder() as work:
        for number, place in enumerate(places):
            for step in steps[at:place]:
                disk.do(step)
                if step.kind is StepKind.MARK:
                    expected.add(step.data)
            at = place
            folder = work / str(number)
            folder.mkdir()
            disk.cut(chance, folder)
            with RedisServer(folder) as server:
                if wrong := asyncio.run(_wrong_in_redis(server.url, expected, may_be_lost)):
                    verdict.wrong[number] = wrong
            shutil.rmtree(folder)
            verdict.num_cuts += 1
    return verdict
