"""Random clusters, as TAG draws them: up to four machines of equal devices each.

Source: TAG (TPDS'23), the ranges of its code.
"""

from random import Random

from dyorc.planner.cluster import Cluster
from dyorc.planner.cluster.published import tag_cluster

_MAX_MACHINES = 4
_MAX_DEVICES = 16
_COUNTS = (2, 3, 4, 6, 8)
_DEVICES = ("P100", "1080Ti", "V100-14G")
_INSIDE_BYTES_PER_S = (8000e6, 20000e6)
_BETWEEN_BYTES_PER_S = (2810e6, 5000e6)


def random_cluster(random: Random, num_devices: int | None = None) -> Cluster:
    """Draws a cluster.

    Args:
        random: Where from.
        num_devices: How many devices it has in all; from 2 to 16 if None.
    """
    while True:
        counts = [random.choice(_COUNTS) for _ in range(random.randint(1, _MAX_MACHINES))]
        if sum(counts) == num_devices if num_devices else sum(counts) <= _MAX_DEVICES:
            break
    machines = [(random.choice(_DEVICES), count, random.choice(_INSIDE_BYTES_PER_S)) for count in counts]
    return tag_cluster(machines, random.choice(_BETWEEN_BYTES_PER_S), name="x".join(map(str, counts)))
