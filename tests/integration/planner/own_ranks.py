"""Ranks of modules that call `torch.distributed` themselves: each is `python -m MODULE FOLDER RANK NUM_RANKS`.

They meet by a file in the folder, and leave tensors there.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from tests.deadlines import TIMEOUT_S


def run_ranks(module: str, folder: Path, num_ranks: int) -> list[dict[str, torch.Tensor]]:
    """Runs a module on some ranks, and returns what each has left."""
    command = [sys.executable, "-m", module, str(folder)]
    ranks = [subprocess.Popen([*command, str(rank), str(num_ranks)]) for rank in range(num_ranks)]
    try:
        assert [rank.wait(TIMEOUT_S) for rank in ranks] == [0] * num_ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [load_file(folder / f"{rank}.safetensors") for rank in range(num_ranks)]


@dataclass(frozen=True)
class OwnRank:
    """This process, in a group of all."""

    rank: int
    num_ranks: int
    group: dist.ProcessGroup
    folder: Path

    def leave(self, tensors: dict[str, torch.Tensor]) -> None:
        """Leaves tensors for the test."""
        save_file(tensors, self.folder / f"{self.rank}.safetensors")


@contextmanager
def own_rank() -> Iterator[OwnRank]:
    """Joins the group that the command line names; torch has one thread."""
    torch.set_num_threads(1)
    folder, rank, num_ranks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    store = dist.FileStore(str(folder / "store"), num_ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=TIMEOUT_S))
    group = dist.group.WORLD
    assert group is not None
    yield OwnRank(rank, num_ranks, group, folder)
    dist.destroy_process_group()
