"""Layers by their stages. What an edge needs of its ends only is computed at these, once for each vertex: `project`."""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional

Gather = Literal["sum", "softmax"]


class SagaLayer(nn.Module):
    """What is computed at vertices before edges, at edges, and at vertices after them.

    Attributes:
        gather: How messages meet at their target: added up, or added up with weights, whose logits are the message's last column.
        is_linear: Whether a message is what its source projects, and nothing else: then a sparse product computes all.
    """

    gather: Gather = "sum"
    is_linear = False

    def project(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what edges read of their sources, and of their targets.

        Args:
            x: `[vertices, features]`.
            scale: `[vertices, 1]`, roots of inverse degrees.
        """
        raise NotImplementedError

    def weighted(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Returns what a linear layer may add up in place of messages, to project the sums, with scales of 1, later."""
        return x

    def message(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Returns each edge's message, from rows of what its ends projected."""
        return source

    def update(self, x: torch.Tensor, scale: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        """Returns the new features: from the old ones, and what was gathered."""
        raise NotImplementedError


class Gcn(SagaLayer):
    """A graph convolution (arXiv 1609.02907)."""

    is_linear = True

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, hidden, bias=False)

    def project(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `SagaLayer`."""
        return self.linear(x) * scale, scale[:, :0]

    def weighted(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """See `SagaLayer`."""
        return x * scale

    def update(self, x: torch.Tensor, scale: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        """See `SagaLayer`."""
        return functional.relu(gathered * scale)


class Sage(SagaLayer):
    """GraphSAGE with the mean (arXiv 1706.02216)."""

    is_linear = True

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.own = nn.Linear(features, hidden)
        self.others = nn.Linear(features, hidden, bias=False)

    def project(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `SagaLayer`."""
        return self.others(x), scale[:, :0]

    def update(self, x: torch.Tensor, scale: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        """See `SagaLayer`."""
        return functional.relu(self.own(x) + gathered * scale.square())


class GgNn(SagaLayer):
    """A gated graph network (arXiv 1511.05493): what arrives changes the features through a GRU."""

    is_linear = True

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, hidden, bias=False)
        self.gru = nn.GRUCell(hidden, features)

    def project(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `SagaLayer`."""
        return self.linear(x), scale[:, :0]

    def update(self, x: torch.Tensor, scale: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        """See `SagaLayer`."""
        return self.gru(gathered, x)


class GatedGcn(SagaLayer):
    """A graph convolution with a gate at each edge (G-GCN, arXiv 1711.07553)."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.of_source = nn.Linear(features, 2 * hidden)
        self.of_target = nn.Linear(features, hidden, bias=False)
        self.own = nn.Linear(features, hidden)

    def project(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `SagaLayer`."""
        return self.of_source(x), self.of_target(x)

    def message(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """See `SagaLayer`."""
        gate, value = source.chunk(2, dim=1)
        return torch.sigmoid(gate + target) * value

    def update(self, x: torch.Tensor, scale: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        """See `SagaLayer`."""
        return functional.relu(self.own(x) + gathered)


class Gat(SagaLayer):
    """Graph attention with one head (arXiv 1710.10903)."""

    gather = "softmax"

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, hidden, bias=False)
        self.of_source = nn.Linear(hidden, 1, bias=False)
        self.of_target = nn.Linear(hidden, 1, bias=False)

    def project(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `SagaLayer`."""
        z = self.linear(x)
        return torch.cat([z, self.of_source(z)], dim=1), self.of_target(z)

    def message(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """See `SagaLayer`."""
        return torch.cat([source[:, :-1], functional.leaky_relu(source[:, -1:] + target, 0.2)], dim=1)

    def update(self, x: torch.Tensor, scale: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        """See `SagaLayer`."""
        return functional.elu(gathered)
