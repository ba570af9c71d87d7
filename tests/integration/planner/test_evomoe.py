"""Experts on two ranks compute what they compute in one process, and tokens travel only to the experts they go to."""

from pathlib import Path

import torch

from tests.integration.planner.evomoe_rank import HIDDEN, NUM_TOKENS, computed, make
from tests.integration.planner.own_ranks import run_ranks


def test_two_ranks_with_half_of_the_experts_each_compute_what_one_does(tmp_path: Path) -> None:
    found = run_ranks("tests.integration.planner.evomoe_rank", tmp_path, 2)
    experts, x, weights = make()
    for name, tensor in computed(experts, x, weights).items():
        ours = torch.cat([each[name] for each in found])
        is_read = weights != 0 if name == "weights" else torch.ones_like(tensor, dtype=torch.bool)
        torch.testing.assert_close(ours[is_read], tensor[is_read], rtol=0, atol=1e-12, msg=name)
    for name, parameter in experts.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(next(each[name] for each in found if name in each), expected, rtol=0, atol=1e-12)
    half = NUM_TOKENS // 2
    num_sent = [int((weights[:half, 2:] != 0).sum()), int((weights[half:, :2] != 0).sum())]
    assert [int(each["sent_bytes"]) for each in found] == [8 * HIDDEN * num for num in num_sent]
