"""Runs plans on real ranks: one process for each, gloo on CPUs and NCCL where each rank has a GPU.

region_moves.py, rank_schedule.py     what one rank does for a plan: decided once, without torch
pieces.py, rank_collectives.py, links.py, shaping.py, egress.py            moves bytes between ranks
communication_channels.py, schedule_executor.py     carries the schedule out, communication beside computation
rank.py, rank_processes.py, rank_messages.py, rank_progress.py             the process of a rank, and what it and its parent say
rank_fork_server.py, rank_fork_server_process.py, descriptor_messages.py   a process that imports once, and forks ranks
rank_weights.py                                                            a rank's pieces of a safetensors file
ranks.py, failures.py                                                      the parent: starts ranks, and says which one failed
checkpoint.py, training.py                                                 trains, and goes on with any other plan
side_by_side.py, job_turns.py, presence.py                                 several jobs on the same devices, in turns
paces.py, shared_devices.py                                                emulates devices, and jobs that share them
"""

from dyorc.planner.runtime.checkpoint import Checkpoint
from dyorc.planner.runtime.egress import Egress, egress_of
from dyorc.planner.runtime.rank_processes import RankForkServer
from dyorc.planner.runtime.ranks import RankOptions, Ranks, RunResult
from dyorc.planner.runtime.shaping import LinkShape, paces_of
from dyorc.planner.runtime.training import Trained, Training, run, train, train_on

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
