"""Runs plans on real ranks: one process for each, gloo on CPUs and NCCL where each rank has a GPU.

region_moves.py, message_lanes.py, rank_schedule.py   what one rank does for a plan: decided once, without torch
schedule_executor.py, fused.py, pieces.py             carries the schedule out; fused.py carries out kernels
communication_channels.py, rank_collectives.py        communication during computation, in every algorithm
links.py, media.py, channel_endpoints.py              moves bytes: by torch.distributed, or by DyOrc's tensor path
rank.py, rank_messages.py, rank_weights.py            the process of a rank, its messages, its pieces of a weights file
rank_processes.py, rank_fork_server_process.py        starts these processes, by descriptor_messages.py
ranks.py, rank_progress.py                            the parent: sends steps to ranks, and says which one failed
checkpoint.py, training.py                            runs and trains, and goes on with any other plan
side_by_side.py, job_turns.py                         several jobs on the same devices, in turns
shaping.py, egress.py, shared_devices.py              emulates a cluster's devices and links
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
