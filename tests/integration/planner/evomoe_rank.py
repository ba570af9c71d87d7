"""One rank with some of the experts: `python -m tests.integration.planner.evomoe_rank FOLDER RANK NUM_RANKS`.

Leaves what it computed for its tokens, the gradients of its experts, and the bytes that it sent.
"""

from collections.abc import Mapping

import torch

from benchmarks.papers.models.evomoe import LocalExperts, ParallelExperts
from dyorc.planner.models.blocks import FeedForward
from tests.integration.planner.own_ranks import own_rank

HIDDEN, NUM_EXPERTS, NUM_TOKENS = 8, 4, 24


def make() -> tuple[LocalExperts, torch.Tensor, torch.Tensor]:
    """Returns experts, tokens and weights, alike in all processes; one expert has no token at all."""
    torch.manual_seed(0)
    experts = LocalExperts(FeedForward(HIDDEN, 16) for _ in range(NUM_EXPERTS)).double()
    x = torch.randn(NUM_TOKENS, HIDDEN, dtype=torch.float64)
    weights = torch.rand(NUM_TOKENS, NUM_EXPERTS, dtype=torch.float64)
    weights = weights * (weights > 0.6) * torch.tensor([1.0, 1.0, 0.0, 1.0])
    return experts, x, weights


def computed(experts: torch.nn.Module, x: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns the output and the gradients of tokens and weights."""
    x, weights = x.clone().requires_grad_(), weights.clone().requires_grad_()
    y = experts(x, weights)
    y.square().sum().backward()
    gradients: Mapping[str, torch.Tensor | None] = {"x": x.grad, "weights": weights.grad}
    return {"y": y.detach()} | {name: gradient for name, gradient in gradients.items() if gradient is not None}


def main() -> None:
    """Computes."""
    with own_rank() as own:
        experts, x, weights = make()
        num_own = NUM_EXPERTS // own.num_ranks
        rows = slice(own.rank * NUM_TOKENS // own.num_ranks, (own.rank + 1) * NUM_TOKENS // own.num_ranks)
        parallel = ParallelExperts(list(experts)[own.rank * num_own : (own.rank + 1) * num_own], own.group)
        found = computed(parallel, x[rows], weights[rows])
        for number, expert in enumerate(parallel.experts, own.rank * num_own):
            found |= {f"{number}.{name}": p.grad for name, p in expert.named_parameters() if p.grad is not None}
        own.leave(found | {"sent_bytes": torch.tensor(parallel.sent_bytes)})


if __name__ == "__main__":
    main()
