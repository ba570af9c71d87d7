"""A graph on three ranks: what goes round the ring makes the same outputs and gradients as one process."""

from pathlib import Path

import torch

from benchmarks.papers.models.gnn import whole
from tests.integration.planner.gnn_rank import make
from tests.integration.planner.own_ranks import run_ranks

_NUM_RANKS = 3


def test_three_ranks_compute_what_one_does(tmp_path: Path) -> None:
    found = run_ranks("tests.integration.planner.gnn_rank", tmp_path, _NUM_RANKS)
    layer, graph, x = make()
    x.requires_grad_()
    y = whole(layer, graph, x)
    y.square().sum().backward()
    assert x.grad is not None
    for name, expected in (("y", y.detach()), ("x", x.grad)):
        torch.testing.assert_close(torch.cat([each[name] for each in found]), expected, rtol=0, atol=1e-10, msg=name)
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        for each in found:
            torch.testing.assert_close(each[name], parameter.grad, rtol=0, atol=1e-10, msg=name)
