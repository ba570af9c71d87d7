"""The programs that are deployed, while an engine runs."""

from collections.abc import Callable

from dyorc.authoring.program import Program
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import ReplicaLeft
from dyorc.engine.scheduling.parking import Parking
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.retrying import fail
from dyorc.errors import NotDeployedError


class ProgramRegistry:
    """Calls programs up, and strikes them off.

    Args:
        pools: Programs by name.
        lose: Takes back what a replica has, because it is gone.
    """

    def __init__(
        self, shared: EngineContext, pools: dict[str, ReplicaPool], parking: Parking, lose: Callable[[ReplicaLeft], None]
    ) -> None:
        self._turn = shared.turn
        self._timers = shared.timers
        self._config = shared.config
        self._statistics = shared.host.statistics
        self._pools = pools
        self._parking = parking
        self._lose = lose

    def add(self, program: Program) -> None:
        """Takes calls of another program from now on."""
        self._pools[program.name] = ReplicaPool(program, self._statistics.of_program(program.name), self._config)
        self._parking.added(program.name)

    def remove(self, name: str) -> None:
        """Takes no calls of a program any more. Those that are there fail, and its replicas are forgotten."""
        pool = self._pools[name]
        for replica in (*pool.replicas.values(), *pool.draining.values()):
            self._lose(ReplicaLeft(replica.replica_id, "its program was removed"))
        for call in pool.take_all():
            call.wait()
            fail(self._turn, pool, call, NotDeployedError(f"program {name!r} is not deployed any more"))
        if pool.timer is not None:
            self._timers.cancel(pool.timer)
        self._parking.removed(name)
        del self._pools[name]
