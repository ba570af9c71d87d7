"""A fixed number of replicas: what there is without scaling."""

from collections.abc import Sequence

from dyorc.scaling.model import DesiredReplicas, ProgramLoad


class Fixed:
    """Wishes the same number of replicas for every program."""

    def __init__(self, num_replicas: int) -> None:
        self._num_replicas = num_replicas

    def decide(self, loads: Sequence[ProgramLoad], now_ns: int) -> Sequence[DesiredReplicas]:
        """Returns a wish for each program that has another number."""
        return [
            DesiredReplicas(load.program, self._num_replicas, 0, "fixed")
            for load in loads
            if load.counts.num_processes != self._num_replicas
        ]
