"""AdamA on several ranks: averages are reduced once for each step, and it is as if one process had had all microbatches."""

from pathlib import Path

import torch

from tests.integration.planner.adama_rank import train
from tests.integration.planner.own_ranks import run_ranks


def test_two_ranks_with_half_of_the_microbatches_each_are_as_one_with_all(tmp_path: Path) -> None:
    found = run_ranks("tests.integration.planner.adama_rank", tmp_path, 2)
    expected = train(0, 1, None).state_dict()
    for each in found:
        assert each.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(each[name], tensor, rtol=0, atol=1e-12)
