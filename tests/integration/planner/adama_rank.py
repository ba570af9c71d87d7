"""One rank that trains by AdamA: `python -m tests.integration.planner.adama_rank FOLDER RANK NUM_RANKS`.

All ranks together have the same microbatches, whatever their number. Leaves the parameters.
"""

import torch
import torch.distributed as dist
from torch import nn

from dyorc.planner.passes.adama import AdamA
from tests.integration.planner.own_ranks import own_rank

NUM_PARTS = 4
_STEPS = 3


def train(rank: int, num_ranks: int, group: dist.ProcessGroup | None) -> nn.Module:
    """Trains on this rank's share of the microbatches."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    optimizer = AdamA(module.parameters(), lr=0.05, group=group, weight_decay=0.1)
    for step in range(_STEPS):
        torch.manual_seed(step)
        batch = torch.randn(NUM_PARTS, 5, 8, dtype=torch.float64)
        for part in range(rank, NUM_PARTS, num_ranks):
            (module(batch[part]).square().mean() * num_ranks / NUM_PARTS).backward()
        optimizer.step()
    return module


def main() -> None:
    """Trains and leaves the parameters."""
    with own_rank() as own:
        own.leave(dict(train(own.rank, own.num_ranks, own.group).state_dict()))


if __name__ == "__main__":
    main()
