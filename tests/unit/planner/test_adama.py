"""AdamA: the mean is Adam's, the square its own closed form, and no gradient outlives its layer."""

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

import pytest
import torch
from torch import nn

from benchmarks.papers import adama
from benchmarks.papers.table import Relation
from dyorc.planner.cluster import even_cluster
from dyorc.planner.cluster.small import uneven_cluster
from dyorc.planner.memory import peak_of
from dyorc.planner.passes.adama import AdamA, accumulate_microbatches, with_adama
from dyorc.planner.plan import Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, ValueKind, evaluate, with_update
from dyorc.planner.runtime.communication_channels import InlineChannel, RankChannels
from dyorc.planner.runtime.links import Links
from dyorc.planner.runtime.rank_schedule import schedule_of
from dyorc.planner.runtime.region_moves import Key
from dyorc.planner.runtime.schedule_executor import Emulated, ScheduleExecutor
from dyorc.planner.simulate import simulate
from tests.unit.planner.examples import Example, example, example_of
from tests.unit.planner.planned import assert_equal_to_one_device

_NUM_PARTS = 3
_SETTINGS = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-7}


class _Layers(nn.Module):
    """Equal layers with few activations."""

    def __init__(self, num_layers: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64, bias=False), nn.Tanh()) for _ in range(num_layers)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


@cache
def layers() -> Example:
    torch.manual_seed(0)
    return example_of(_Layers(), (torch.randn(2, 64, dtype=torch.float64),))


def batches(found: Example, num_parts: int) -> list[tuple[torch.Tensor, ...]]:
    """Returns inputs for each microbatch: the example's rows in other orders."""
    torch.manual_seed(1)
    return [tuple(x[torch.randperm(len(x))] + part * x.is_floating_point() for x in found.inputs) for part in range(num_parts)]


def sources_of(program: TensorProgram, found: Example, parts: list[tuple[torch.Tensor, ...]]) -> dict[str, torch.Tensor]:
    """Returns the sources of a step: states begin at something other than zero, so that what is kept of them counts."""
    sources = {name: tensor for name, tensor in found.sources.items() if name in program.values}
    sources |= dict(zip(program.inputs, (x for part in parts for x in part), strict=True))
    for name in program.sources:
        if program.values[name].kind is ValueKind.STATE:
            sources[name] = torch.full(program.values[name].shape, 2.0, dtype=torch.float64)
    return sources


def gradients_of(found: Example, part: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    """Returns the gradients of one microbatch by itself."""
    results = evaluate(found.program, found.sources | dict(zip(found.program.inputs, part, strict=True)))
    return {parameter: results[gradient] for parameter, gradient in found.program.gradients.items()}


def after(program: TensorProgram, sources: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    results = evaluate(program, sources)
    return {source: results[value] for source, value in program.updates.items()}


@pytest.mark.parametrize("name", ["net", "gpt"])
def test_the_mean_is_adams_and_the_square_its_closed_form(name: str) -> None:
    found = example(name)
    parts = batches(found, _NUM_PARTS)
    ours = with_adama(found.program, _NUM_PARTS, **_SETTINGS)
    adams = with_update(accumulate_microbatches(found.program, _NUM_PARTS), "adam", **_SETTINGS)
    sources = sources_of(ours, found, parts)
    changed, expected = after(ours, sources), after(adams, sources)
    each = [gradients_of(found, part) for part in parts]
    assert changed.keys() == expected.keys()
    for parameter in found.program.gradients:
        torch.testing.assert_close(changed[f"{parameter}.mean"], expected[f"{parameter}.mean"], rtol=0, atol=1e-12)
        squares = sum((gradients[parameter] / _NUM_PARTS) ** 2 for gradients in each)
        closed = 0.95 * sources[f"{parameter}.square"] + 0.05 * squares
        torch.testing.assert_close(changed[f"{parameter}.square"], closed, rtol=0, atol=1e-12)
        assert not torch.allclose(changed[f"{parameter}.square"], expected[f"{parameter}.square"], rtol=0, atol=1e-9)


def test_with_one_microbatch_it_is_adam_to_the_bit() -> None:
    found = example("net")
    ours, adams = with_adama(found.program, 1, **_SETTINGS), with_update(found.program, "adam", **_SETTINGS)
    sources = sources_of(ours, found, [found.inputs])
    renamed = dict(zip(adams.inputs, found.inputs, strict=True))
    expected = after(adams, sources | renamed)
    for source, value in after(ours, sources).items():
        assert torch.equal(value, expected[source]), source


@pytest.mark.parametrize(("planner", "speeds"), [("dp_even", (1.0, 1.0)), ("dp_proportional", (3.0, 1.0)), ("zero", (1.0, 1.0))])
def test_plans_of_it_are_proved_and_equal(planner: str, speeds: tuple[float, ...]) -> None:
    found = example("net")
    program = with_adama(found.program, _NUM_PARTS, **_SETTINGS)
    sources = sources_of(program, found, batches(found, _NUM_PARTS))
    step = Example(program, sources, evaluate(program, sources), found.module, found.inputs)
    assert_equal_to_one_device(step, PLANNERS[planner](program, uneven_cluster(speeds)))


def test_a_plan_of_it_needs_the_gradients_of_one_layer_less_than_all() -> None:
    found, cluster = layers(), even_cluster(2)
    ours = with_adama(found.program, 2)
    adams = with_update(accumulate_microbatches(found.program, 2), "adam")
    peaks = [max(simulate(PLANNERS["dp_even"](one, cluster), one, cluster).peak_bytes) for one in (ours, adams)]
    num_bytes = sum(found.program.values[name].num_bytes for name in found.program.parameters)
    assert peaks[1] - peaks[0] > 0.5 * num_bytes


def counted_bytes(plan: Plan, sources: Mapping[str, torch.Tensor]) -> int:
    """Counts tensor by tensor what one rank needs at most while it runs a plan."""
    given = {Key(ids[0], 0): sources[name] for name, ids in plan.sources.items()}
    links = Links(rank=0, num_ranks=1, device=torch.device("cpu"))
    executor = ScheduleExecutor(
        schedule_of(plan, 0), links, RankChannels(InlineChannel), emulated=Emulated(), reach=lambda step: None
    )
    return peak_of(lambda: executor.run(given), given.values())


def test_a_plan_takes_the_memory_that_the_simulator_says_with_it_and_without() -> None:
    found, cluster = layers(), even_cluster(1)
    counted, simulated = list[int](), list[int]()
    for program in (with_update(accumulate_microbatches(found.program, 2), "adam"), with_adama(found.program, 2)):
        plan = PLANNERS["dp_even"](program, cluster)
        counted.append(counted_bytes(plan, sources_of(program, found, batches(found, 2))))
        simulated += simulate(plan, program, cluster).peak_bytes
    assert counted == simulated
    assert counted[0] - counted[1] == sum(found.program.values[name].num_bytes for name in found.program.parameters)


def test_the_optimizer_computes_the_program_and_frees_gradients() -> None:
    found = example("net")
    parts = batches(found, _NUM_PARTS)
    program = with_adama(found.program, _NUM_PARTS, **_SETTINGS)
    module = copy.deepcopy(found.module)
    optimizer = AdamA(module.parameters(), **_SETTINGS)
    sources = sources_of(program, found, parts)
    sources |= {name: torch.zeros_like(x) for name, x in sources.items() if program.values[name].kind is ValueKind.STATE}
    for _ in range(2):
        for part in parts:
            (module(*part) / _NUM_PARTS).backward()
            assert all(parameter.grad is None for parameter in module.parameters())
        optimizer.step()
        sources |= after(program, sources)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(sources[name], parameter.detach(), rtol=0, atol=1e-12)
    optimizer.close()
    module(*parts[0]).backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_training_goes_on_from_a_saved_state_and_parameters_without_gradients_stay() -> None:
    torch.manual_seed(0)
    begun = nn.Linear(4, 4).double()
    begun.register_parameter("unused", nn.Parameter(torch.ones(3, dtype=torch.float64)))
    batches = torch.randn(4, 2, 4, dtype=torch.float64)
    first = AdamA(begun.parameters(), **_SETTINGS)
    for batch in batches[:2]:
        begun(batch).square().sum().backward()
    first.step()
    saved, other = copy.deepcopy(first.state_dict()), copy.deepcopy(begun)
    second = AdamA(other.parameters(), lr=1.0)
    second.load_state_dict(saved)
    for module, optimizer in ((begun, first), (other, second)):
        for batch in batches[2:]:
            module(batch).square().sum().backward()
        optimizer.step()
    assert all(torch.equal(one, again) for one, again in zip(begun.parameters(), other.parameters(), strict=True))
    assert torch.equal(begun.get_parameter("unused"), torch.ones(3, dtype=torch.float64))


def test_the_optimizer_saves_the_gradients_of_all_layers_but_one() -> None:
    found = layers()

    def peak(make: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]) -> int:
        module = copy.deepcopy(found.module)
        optimizer = make(module.parameters())

        def step() -> None:
            for part in batches(found, 2):
                (module(*part) / 2).backward()
            optimizer.step()
            optimizer.zero_grad()

        step()  # the averages are made
        held = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor)]
        return peak_of(step, [*module.parameters(), *held])

    num_bytes = sum(p.numel() * p.element_size() for p in found.module.parameters())
    layer_bytes = num_bytes // 8
    saved = peak(partial(torch.optim.Adam, foreach=False)) - peak(AdamA)
    assert 0 <= saved - (num_bytes - layer_bytes) <= 3 * layer_bytes  # by which the two optimizers' own temporaries differ


def test_a_parameter_that_is_not_trained_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\) needs no gradient"):
        AdamA([nn.Parameter(torch.zeros(2), requires_grad=False)])


def test_what_can_be_counted_comes_out_as_published_and_as_computed_here() -> None:
    rows = [*adama.algebra(), *adama.reduced_bytes()]
    assert [row.relation for row in rows] == [Relation.AGREES, Relation.AGREES, Relation.EQUAL]
