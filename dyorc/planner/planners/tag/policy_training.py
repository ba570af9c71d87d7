"""Trains the network on searches of small models on random clusters: `make train-tag`.

A game is a search of one model on one random cluster: some playouts, the visits of the first group's actions are recorded, the
group is decided by lot among them, and so on for the first groups, on which more depends than on the later ones. The first
round is played without the network; then it learns to foresee the visits, guides the games of the next round, and learns from
all.

Random clusters are drawn as TAG does: up to four machines of equal devices each.

Source: TAG (TPDS'23); the ranges of clusters are those of its code. Fewer and shorter games than there, and smaller models:
minutes on one core instead of hours.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter

import torch

from dyorc.planner.cluster import Cluster
from dyorc.planner.cluster.published import tag_cluster
from dyorc.planner.models import bert, gpt, vgg19, vit
from dyorc.planner.planners.tag.estimate import Estimator
from dyorc.planner.planners.tag.features import FeatureGraph
from dyorc.planner.planners.tag.group_actions import SearchContext
from dyorc.planner.planners.tag.policy_network import WEIGHTS, NetworkPrior, PolicyNetwork, batch_graphs, one_thread, save_network
from dyorc.planner.planners.tag.tree_search import SearchBaseline, TreeSearch
from dyorc.planner.program import TensorProgram, capture

_MAX_MACHINES = 4
_MAX_DEVICES = 16
_COUNTS = (2, 3, 4, 6, 8)
_DEVICES = ("P100", "1080Ti", "V100-14G")
_INSIDE_BYTES_PER_S = (8000e6, 20000e6)
_BETWEEN_BYTES_PER_S = (2810e6, 5000e6)


def random_cluster(random: Random, num_devices: int | None = None) -> Cluster:
    """Draws a cluster.

    Args:
        random: Where from.
        num_devices: How many devices it has in all; from 2 to 16 if None.
    """
    while True:
        counts = [random.choice(_COUNTS) for _ in range(random.randint(1, _MAX_MACHINES))]
        if sum(counts) == num_devices if num_devices else sum(counts) <= _MAX_DEVICES:
            break
    machines = [(random.choice(_DEVICES), count, random.choice(_INSIDE_BYTES_PER_S)) for count in counts]
    return tag_cluster(machines, random.choice(_BETWEEN_BYTES_PER_S), name="x".join(map(str, counts)))


_BATCH = 48
_LEARNING_RATE, _LARGEST_NORM, _RECORDS_EACH = 5e-4, 0.6, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEffort:
    """How long the training takes; all of it is counted, nothing timed, so that the same seed makes the same weights.

    Attributes:
        rounds: Of games; the first one without the network.
        games: In each round, on each model.
        groups: How many groups of a game are decided.
        playouts: For each of them.
        epochs: How often each round looks at each record.
    """

    rounds: int = 3
    games: int = 8
    groups: int = 4
    playouts: int = 150
    epochs: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GameRecord:
    """A state of a search, and which part of the playouts tried each action."""

    graph: FeatureGraph
    visits: Sequence[float]


def programs() -> Sequence[TensorProgram]:
    """Returns the models that games are played with: no model of the published tables."""
    with torch.device("meta"):
        built = [
            vgg19(width=64, inner=4096, batch=_BATCH, convolutions=(1, 1, 2, 2, 2)),
            bert(layers=1, hidden=768, heads=12, vocabulary=8192, sequence=64, batch=_BATCH),
            gpt(layers=2, hidden=512, heads=8, vocabulary=1024, sequence=32, batch=_BATCH),
            vit(layers=2, hidden=384, heads=6, batch=_BATCH),
        ]
    return [capture(*each) for each in built]


def play(program: TensorProgram, seed: int, effort: TrainingEffort, network: PolicyNetwork | None) -> Iterator[GameRecord]:
    """Plays one game on a random cluster, and yields its records."""
    random = Random(seed)
    estimator = Estimator(SearchContext(program, random_cluster(random)))
    start, watching = SearchBaseline(estimator), NetworkPrior(estimator, network or PolicyNetwork())
    search = TreeSearch(start.game(), seed, watching if network else None)
    for _ in range(min(effort.groups, len(estimator.context.groups))):
        for _ in zip(range(effort.playouts), search.playouts(), strict=False):
            pass
        visits = search.visits()
        yield GameRecord(graph=watching.graph(*search.state()), visits=visits)
        search.decide(random.choices(estimator.context.actions, visits)[0])


def learn(network: PolicyNetwork, records: Sequence[GameRecord], epochs: int, seed: int) -> float:
    """Trains the network on records, and returns the cross-entropy in the last epoch, less that of the visits themselves."""
    network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    random, losses = Random(seed), list[float]()
    for _ in range(epochs):
        losses.clear()
        order = random.sample(records, len(records))
        for first in range(0, len(order), _RECORDS_EACH):
            some = order[first : first + _RECORDS_EACH]
            logits = network(batch_graphs([record.graph for record in some]))
            visits = torch.zeros_like(logits)
            for row, record in zip(visits, some, strict=True):
                row[: len(record.visits)] = torch.tensor(record.visits)
            loss = (torch.xlogy(visits, visits) - visits * logits).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), _LARGEST_NORM)
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def train(seed: int, effort: TrainingEffort, tell: Callable[[str], None], known: Sequence[TensorProgram] = ()) -> PolicyNetwork:
    """Plays and learns.

    Args:
        seed: Of clusters, games and the network; the same seed makes the same weights.
        effort: How much.
        tell: Called with a line of progress.
        known: The models; those of `programs` if there are none.
    """
    torch.manual_seed(seed)
    network, records, random = PolicyNetwork(), list[GameRecord](), Random(seed)
    models = known or programs()
    for number in range(effort.rounds):
        for game in range(effort.games):
            for program in models:
                records += play(program, random.randrange(1 << 30), effort, network if number else None)
            tell(f"round {number + 1}: {game + 1} games on each model, {len(records)} records")
        loss = learn(network, records, effort.epochs, seed)
        tell(f"round {number + 1}: divergence of the network from the visits {loss:.3f}")
    return network


def main() -> None:
    """Trains and writes the weights."""
    options, usual, begun_s = argparse.ArgumentParser(description=__doc__), TrainingEffort(), perf_counter()
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--games", type=int, default=usual.games)
    options.add_argument("--output", type=Path, default=WEIGHTS)
    chosen = options.parse_args()

    def tell(text: str) -> None:
        print(f"{perf_counter() - begun_s:6.0f} s  {text}", flush=True)

    with one_thread():  # which also adds in the same order everywhere
        network = train(chosen.seed, TrainingEffort(games=chosen.games), tell)
    save_network(network, chosen.output)
    tell(f"{chosen.output}: {chosen.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
