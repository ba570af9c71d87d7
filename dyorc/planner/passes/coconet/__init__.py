"""CoCoNeT: computation and communication are rewritten together.

rewriting.py   the transformations, each refused where it would not compute the same
producers.py   which products can be computed slice by slice while their sum goes round the ring
tune.py        the schedules that they lead to, and which is the quickest
on_ranks.py    measures them on real ranks
"""

from dyorc.planner.passes.coconet.rewriting import Rewriting
from dyorc.planner.passes.coconet.tune import (
    ScheduleCandidate,
    best_of,
    candidates_of,
    coconet,
    fuse_updates,
    measure_candidates,
    overlap_products,
    slice_updates,
    use_rings,
)

__all__ = [
    "Rewriting",
    "ScheduleCandidate",
    "best_of",
    "candidates_of",
    "coconet",
    "fuse_updates",
    "measure_candidates",
    "overlap_products",
    "slice_updates",
    "use_rings",
]
