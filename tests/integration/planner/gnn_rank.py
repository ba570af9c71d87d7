"""One rank with some of a graph's vertices: `python -m tests.integration.planner.gnn_rank FOLDER RANK NUM_RANKS`."""

import torch
import torch.distributed as dist

from benchmarks.papers.models.gnn import GatedGcn, Graph, Grid, on_ring, rmat
from tests.integration.planner.own_ranks import own_rank

FEATURES = 6


def make() -> tuple[GatedGcn, Graph, torch.Tensor]:
    """Returns a layer, a graph and features, alike in all processes."""
    torch.manual_seed(0)
    graph = rmat(5, 150)
    return GatedGcn(FEATURES, 4).double(), graph, torch.randn(graph.num_vertices, FEATURES, dtype=torch.float64)


def main() -> None:
    """Computes the rank's rows and gradients."""
    with own_rank() as own:
        layer, graph, x = make()
        grid = Grid(graph, own.num_ranks)
        rows = x[grid.rows[own.rank]].requires_grad_()
        y = on_ring(layer, grid, rows, own.group)
        y.square().sum().backward()
        assert rows.grad is not None
        found = {"y": y.detach(), "x": rows.grad}
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            found[name] = parameter.grad
        own.leave(found)


if __name__ == "__main__":
    main()
