"""The network as the prior of a search, and its weights: what `make train-tag` wrote, beside this file."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from dyorc.planner.planners.tag.estimate import Estimator
from dyorc.planner.planners.tag.features import FeatureGraph, Features
from dyorc.planner.planners.tag.group_actions import Action
from dyorc.planner.planners.tag.policy_network import PolicyNetwork, batch_graphs

WEIGHTS = Path(__file__).with_name("prior.safetensors")
"""Where the weights are, if there are any."""


class NetworkPrior:
    """Asks the network about states of one scene. Not for several threads."""

    def __init__(self, estimator: Estimator, network: PolicyNetwork) -> None:
        self._estimator = estimator
        self._features = Features(estimator.scene)
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
