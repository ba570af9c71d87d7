"""The network that says which actions are promising: attention over op groups and machines, and a score for each action.

Source: TAG (TPDS'23). Narrower than there (64 instead of 256), so that its weights are small and a playout is quick; layer norms
instead of batch norms, so that a graph's scores do not depend on which others are scored with it.

The weights are next to this file, written by `make train-tag`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dyorc.planner.planners.tag.estimate import Estimator
from dyorc.planner.planners.tag.features import (
    NUM_EDGE_FEATURES,
    NUM_GROUP_FEATURES,
    NUM_MACHINE_FEATURES,
    NUM_OPTIONS,
    EdgeKind,
    FeatureGraph,
    Features,
)
from dyorc.planner.planners.tag.group_actions import Action

_WIDTH, _HEADS, _LAYERS = 64, 4, 4


@dataclass(frozen=True, kw_only=True)
class GraphBatch:
    """Several graphs, filled up to the largest: all groups first, then all machines.

    Attributes:
        groups: `[graph, group, feature]`.
        machines: `[graph, machine, feature]`.
        edges: `[graph, target, source, feature]`.
        is_edge: `[graph, kind, target, source]`.
        current: `[graph]`.
        placements: `[graph, action, machine]`.
        options: `[graph, action, option]`.
        is_machine: `[graph, machine]`: false where it was filled up.
        is_action: `[graph, action]`, likewise.
    """

    groups: Tensor
    machines: Tensor
    edges: Tensor
    is_edge: Tensor
    current: Tensor
    placements: Tensor
    options: Tensor
    is_machine: Tensor
    is_action: Tensor


def batch_graphs(graphs: Sequence[FeatureGraph]) -> GraphBatch:
    """Fills graphs up to the largest."""
    most = [max(len(part) for part in parts) for parts in zip(*((g.groups, g.machines, g.options) for g in graphs), strict=True)]
    num_groups, num_machines, num_actions = most
    total, count = num_groups + num_machines, len(graphs)
    groups = np.zeros((count, num_groups, NUM_GROUP_FEATURES), np.float32)
    machines = np.zeros((count, num_machines, NUM_MACHINE_FEATURES), np.float32)
    edges = np.zeros((count, total, total, NUM_EDGE_FEATURES), np.float32)
    is_edge = np.zeros((count, len(EdgeKind), total, total), bool)
    placements = np.zeros((count, num_actions, num_machines), np.float32)
    options = np.zeros((count, num_actions, NUM_OPTIONS), np.float32)
    for index, graph in enumerate(graphs):
        nodes = np.array([*range(len(graph.groups)), *range(num_groups, num_groups + len(graph.machines))])
        groups[index, : len(graph.groups)] = graph.groups
        machines[index, : len(graph.machines)] = graph.machines
        edges[index][np.ix_(nodes, nodes)] = graph.edges
        is_edge[index][:, nodes[:, None], nodes] = graph.is_edge
        placements[index, : len(graph.options), : len(graph.machines)] = graph.placements
        options[index, : len(graph.options)] = graph.options
    return GraphBatch(
        groups=torch.from_numpy(groups),
        machines=torch.from_numpy(machines),
        edges=torch.from_numpy(edges),
        is_edge=torch.from_numpy(is_edge),
        current=torch.tensor([graph.current for graph in graphs]),
        placements=torch.from_numpy(placements),
        options=torch.from_numpy(options),
        is_machine=torch.tensor([[n < len(graph.machines) for n in range(num_machines)] for graph in graphs]),
        is_action=torch.tensor([[n < len(graph.options) for n in range(num_actions)] for graph in graphs]),
    )


class _Attention(nn.Module):
    """Each node attends to its neighbours, by itself for each kind of edge; then the mean over the kinds that it has."""

    def __init__(self) -> None:
        super().__init__()
        kinds, each = len(EdgeKind), _WIDTH // _HEADS
        self.message = nn.Parameter(torch.randn(kinds, _WIDTH, _WIDTH) / _WIDTH**0.5)
        self.edge_message = nn.Parameter(torch.randn(kinds, _HEADS, NUM_EDGE_FEATURES, each) / NUM_EDGE_FEATURES**0.5)
        self.source_weight = nn.Parameter(torch.randn(kinds, _WIDTH, _HEADS) / _WIDTH**0.5)
        self.target_weight = nn.Parameter(torch.randn(kinds, _WIDTH, _HEADS) / _WIDTH**0.5)
        self.edge_weight = nn.Parameter(torch.randn(kinds, NUM_EDGE_FEATURES, _HEADS) / NUM_EDGE_FEATURES**0.5)
        self.norm = nn.LayerNorm(_WIDTH)

    def forward(self, nodes: Tensor, edges: Tensor, is_edge: Tensor) -> Tensor:
        """Takes nodes `[graph, node, width]`, and edges as in `GraphBatch`; returns nodes."""
        from_source = torch.einsum("bnw,kwh->bkhn", nodes, self.source_weight)
        at_target = torch.einsum("bnw,kwh->bkhn", nodes, self.target_weight)
        along = torch.einsum("btsf,kfh->bkhts", edges, self.edge_weight)
        logits = nn.functional.leaky_relu(from_source[..., None, :] + at_target[..., None] + along, 0.2)
        weights = torch.softmax(logits.masked_fill(~is_edge[:, :, None], -1e9), dim=-1) * is_edge[:, :, None]
        messages = torch.einsum("bnw,kwv->bknv", nodes, self.message).unflatten(-1, (_HEADS, -1))
        received = torch.einsum("bkhts,bkshd->bkthd", weights, messages)
        of_edges = torch.einsum("bkhts,btsf->bkthf", weights, edges)
        received = received + torch.einsum("bkthf,khfd->bkthd", of_edges, self.edge_message)
        num_kinds = is_edge.any(-1).sum(1).clamp(min=1)
        return self.norm(nodes + torch.relu(received.flatten(-2).sum(1) / num_kinds[..., None]))


class PolicyNetwork(nn.Module):
    """Scores the actions of the group that is decided next."""

    def __init__(self) -> None:
        super().__init__()
        self.of_groups = nn.Sequential(nn.Linear(NUM_GROUP_FEATURES, _WIDTH), nn.Tanh(), nn.LayerNorm(_WIDTH))
        self.of_machines = nn.Sequential(nn.Linear(NUM_MACHINE_FEATURES, _WIDTH), nn.Tanh(), nn.LayerNorm(_WIDTH))
        self.layers = nn.ModuleList([_Attention() for _ in range(_LAYERS)])
        self.of_placements = nn.Sequential(nn.Linear(_WIDTH + 1, _WIDTH), nn.Tanh(), nn.Linear(_WIDTH, _WIDTH), nn.Tanh())
        self.score = nn.Sequential(nn.Linear(2 * _WIDTH + NUM_OPTIONS, _WIDTH), nn.Tanh(), nn.Linear(_WIDTH, 1))

    def forward(self, graphs: GraphBatch) -> Tensor:
        """Returns the logarithm of how promising each action is, `[graph, action]`."""
        nodes = torch.cat([self.of_groups(graphs.groups), self.of_machines(graphs.machines)], dim=1)
        for layer in self.layers:
            nodes = layer(nodes, graphs.edges, graphs.is_edge)
        num_groups, num_actions = graphs.groups.shape[1], graphs.options.shape[1]
        machines = nodes[:, None, num_groups:].expand(-1, num_actions, -1, -1)
        seen = self.of_placements(torch.cat([machines, graphs.placements[..., None]], dim=-1))
        weights = graphs.is_machine[:, None, :, None] / graphs.is_machine.sum(1)[:, None, None, None]
        current = nodes[torch.arange(len(nodes)), graphs.current][:, None].expand(-1, num_actions, -1)
        scores = self.score(torch.cat([(seen * weights).sum(2), current, graphs.options], dim=-1))[..., 0]
        return torch.log_softmax(scores.masked_fill(~graphs.is_action, -1e9), dim=-1)


WEIGHTS = Path(__file__).with_name("prior.safetensors")
"""Where the weights are, if there are any."""


class NetworkPrior:
    """Asks the network about states of one scene. Not for several threads."""

    def __init__(self, estimator: Estimator, network: PolicyNetwork) -> None:
        self._estimator = estimator
        self._features = Features(estimator.context)
        self._network = network.eval()

    def graph(self, actions: Sequence[Action], num_decided: int) -> FeatureGraph:
        """Returns what the network sees of a state."""
        return self._features.graph(actions, num_decided, self._estimator.estimate(actions))

    def __call__(self, actions: Sequence[Action], num_decided: int) -> Sequence[float]:
        """Returns how promising each action of the next group is."""
        with torch.inference_mode():
            return self._network(batch_graphs([self.graph(actions, num_decided)]))[0].exp().tolist()


@contextmanager
def one_thread() -> Generator[None]:
    """Limits torch to one thread: the network's products are too small to gain from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load_network(path: Path = WEIGHTS) -> PolicyNetwork | None:
    """Returns the trained network; None if there are no weights.

    Raises:
        SafetensorError: The file is damaged.
        RuntimeError: The weights are those of another network.
    """
    if not path.exists():
        return None
    network = PolicyNetwork()
    network.load_state_dict(load_file(path))
    return network


def save_network(network: PolicyNetwork, path: Path = WEIGHTS) -> None:
    """Writes the weights."""
    save_file(network.state_dict(), path)
