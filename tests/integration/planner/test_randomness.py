"""Real ranks draw what one device draws, each step other numbers, also after a checkpoint."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from dyorc.planner.cluster import uneven_cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program.randomness import CounterBased
from dyorc.planner.program.randomness.philox import STEP
from dyorc.planner.runtime import RankForkServer, RankOptions, Ranks, Training, train_on
from tests.unit.planner.examples import Example, example

_RATE = 0.5


@pytest.fixture(scope="module")
def ranks(fork_server: RankForkServer) -> Iterator[Ranks]:
    with Ranks(RankOptions(num_ranks=4), fork_server.fork) as started:
        yield started


def _planned(found: Example, planner: str, speeds: Sequence[float], **options: object) -> Plan:
    cluster = uneven_cluster(speeds, flops_per_s=1e9, bytes_per_s=1e9, latency_s=1e-7)
    return PLANNERS[planner](found.program, cluster, **options)


def _losses_of_torch(found: Example, num_steps: int) -> list[float]:
    """Trains the module itself on one device, by `torch.optim.SGD`."""
    losses: list[float] = []
    parameters = {name: p.detach().clone() for name, p in found.module.named_parameters()}
    optimizer = torch.optim.SGD(found.module.parameters(), _RATE)
    for step in range(num_steps):
        optimizer.zero_grad()
        with CounterBased(step):
            loss = found.module(*found.inputs)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        for name, parameter in found.module.named_parameters():
            parameter.copy_(parameters[name])
    return losses


def test_training_that_goes_on_from_a_checkpoint_draws_what_uninterrupted_training_draws(ranks: Ranks, tmp_path: Path) -> None:
    found, inputs = example("dropout"), dict(zip(example("dropout").program.inputs, example("dropout").inputs, strict=True))
    expected = _losses_of_torch(found, 5)
    still = [float(found.results[found.program.loss])] * 2
    assert expected[:2] != still  # other numbers, other parameters
    one, other = _planned(found, "zero", (3, 1)), _planned(found, "megatron", (1, 1, 1, 1), dp=2)
    first = Training(steps=2, learning_rate=_RATE, checkpoint=tmp_path / "checkpoint")
    begun = train_on(ranks, one, found.program, found.sources, lambda _: inputs, first)
    rest = Training(steps=5, learning_rate=_RATE, resume=tmp_path / "checkpoint")
    ended = train_on(ranks, other, found.program, {}, lambda _: inputs, rest)
    assert [*begun.losses, *ended.losses] == pytest.approx(expected, abs=1e-12)
    assert int(ended.sources[STEP]) == 5


def test_steps_that_change_no_parameter_differ_by_what_they_draw(ranks: Ranks) -> None:
    found = example("dropout")
    inputs = dict(zip(found.program.inputs, found.inputs, strict=True))
    plan = _planned(found, "dp_proportional", (3, 1))
    trained = train_on(ranks, plan, found.program, found.sources, lambda _: inputs, Training(steps=3, learning_rate=0.0))
    losses: list[float] = []
    for step in range(3):
        with CounterBased(step):
            losses.append(float(found.module(*found.inputs).detach()))
    assert trained.losses == pytest.approx(losses, abs=1e-12)
    assert len(set(losses)) == 3
