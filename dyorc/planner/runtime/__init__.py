"""Runs plans on real ranks: one process for each, gloo on CPUs and NCCL where each rank has a GPU.

moves.py, schedule.py     what one rank does for a plan: decided once, without torch
pieces.py, collectives.py, links.py, shaping.py, egress.py     moves bytes between ranks
channel.py, executor.py     carries the schedule out, communication beside computation
rank.py, processes.py, wire.py, progress.py     the process of a rank, and what it and its parent say
nursery.py, nursery_process.py, orders.py     the rank fork server: a process that imports once, and forks ranks
weights.py     a rank's pieces of a safetensors file
ranks.py, failures.py     the parent: starts ranks, and says which one failed
checkpoint.py, training.py     trains, and goes on with any other plan
side_by_side.py, turns.py, presence.py     several jobs on the same devices, in turns
paces.py, crowd.py     emulates devices, and jobs that share them
"""

from dyorc.planner.runtime.checkpoint import Checkpoint
from dyorc.planner.runtime.egress import Egress, egress_of
from dyorc.planner.runtime.nursery import RankForkServer
from dyorc.planner.runtime.paces import paces_of
from dyorc.planner.runtime.ranks import RankOptions, Ranks, RunResult
from dyorc.planner.runtime.running import run, train
from dyorc.planner.runtime.shaping import LinkShape
from dyorc.planner.runtime.training import Trained, Training, train_on

__all__ = [
    "Checkpoint",
    "Egress",
    "LinkShape",
    "RankForkServer",
    "RankOptions",
    "Ranks",
    "RunResult",
    "Trained",
    "Training",
    "egress_of",
    "paces_of",
    "run",
    "train",
    "train_on",
]
