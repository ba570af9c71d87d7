"""AdamA (ECAI 2023): what a step computes, the memory it takes, its speed and its losses, against Adam with summed gradients."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import mean, stdev
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.papers.bands import AT_LEAST, EXACT, ROUNDED_64, SPREAD, WITHIN
from benchmarks.papers.characters import NUM_CHARACTERS, draw, manual
from benchmarks.papers.measured import seconds_in_turns
from benchmarks.papers.rows import fact_row, not_here_row, sign_row
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Row
from dyorc.planner.cluster import even_cluster
from dyorc.planner.memory import peak_of
from dyorc.planner.models import gpt
from dyorc.planner.passes.adama import AdamA, accumulate_microbatches, with_adama
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, ValueKind, capture, evaluate, with_update
from dyorc.planner.simulate import simulate

_ABOUT = """AdamA's second moment is the sum of squared microbatch gradients, where Adam squares their sum: it is another
optimizer, and only the first moment is equal. A small GPT on one core; memory is counted tensor by tensor while the step runs,
and losses are those of a model of characters on the text of Python's manual."""

_Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
_Batch = tuple[torch.Tensor, torch.Tensor]
_ADAM: _Make = partial(torch.optim.Adam, lr=1e-3, foreach=False)
_ADAMA: _Make = partial(AdamA, lr=1e-3)
_SEQUENCE, _NUM_SEQUENCES = 32, 16
_NUM_PARTS = (2, 4, 8)


def reproduce(*, quick: bool, progress: Progress) -> Study:
    """Returns the table, to be computed.

    Args:
        quick: One seed and few steps.
        progress: Hears what is done now.
    """
    torch.set_num_threads(1)
    parts: dict[str, Iterable[Row | Line]] = {
        "algebra": algebra(),
        "memory": _memory(progress),
        "plans": _plans(progress),
        "the formula": _by_formula(),
        "speed": _speed(quick, progress),
        "losses": _losses(quick, progress),
        "reduced bytes": reduced_bytes(),
        "not here": _not_here(),
    }
    if quick:
        parts |= {name: unjudged(parts[name], size) for name, size in _FULL_SIZES.items()}
    return Study(name="adama", title="AdamA (ECAI 2023)", about=_ABOUT, parts=parts, is_quick=quick)


_FULL_SIZES = {"speed": "100 steps", "losses": "4 seeds and 300 steps"}
"""Of the parts that a quick run computes at another size."""


def algebra() -> Iterator[Row]:
    """Compares with the closed forms, on random gradients of a small net in float64."""
    torch.manual_seed(0)
    module, num_parts = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double(), 4
    batches = torch.randn(num_parts, 6, 4, dtype=torch.float64)
    program = capture(_Squares(module), (batches[0],))
    ours, adams = with_adama(program, num_parts), with_update(accumulate_microbatches(program, num_parts), "adam")
    sources = {name: p.detach() for name, p in _Squares(module).named_parameters()} | dict(zip(ours.inputs, batches, strict=True))
    for name, value in ours.values.items():
        if value.kind is ValueKind.STATE:
            sources[name] = torch.zeros(value.shape, dtype=torch.float64)
    accumulated, expected = _after(ours, sources), _after(adams, sources)
    each = [evaluate(program, sources | {program.inputs[0]: batch}) for batch in batches]
    error = {"mean": 0.0, "square": 0.0}
    for parameter, gradient in program.gradients.items():
        closed = 1e-3 * sum((results[gradient] / num_parts) ** 2 for results in each)
        error["mean"] = max(error["mean"], float((accumulated[f"{parameter}.mean"] - expected[f"{parameter}.mean"]).abs().max()))
        error["square"] = max(error["square"], float((accumulated[f"{parameter}.square"] - closed).abs().max()))
    for name, what in (("mean", "first moment beside Adam's"), ("square", "second moment beside its closed form")):
        yield fact_row(
            "3.2",
            what,
            "0",
            f"{error[name]:.1g}",
            is_so=error[name] < 1e-12,
            band=ROUNDED_64,
            kind=Kind.OWN,
            note="largest error, float64",
        )


def _memory(progress: Progress) -> Iterator[Row]:
    module = _module(layers=8, hidden=96)
    num_bytes = sum(p.numel() * p.element_size() for p in module.parameters())
    largest = max(sum(p.numel() * p.element_size() for p in layer.parameters()) for layer in _layers(module))
    for num_parts in _NUM_PARTS:
        progress(f"memory of {num_parts} microbatches")
        adam, ours = (_peak(module, make, num_parts) for make in (_ADAM, _ADAMA))
        saved = 1.0 - ours / adam
        yield sign_row(
            "memory",
            f"saved of Adam's peak, {num_parts} microbatches",
            "at most 23 %",
            f"{saved:.1%}",
            is_so=0 < saved <= 0.25,
            note=f"gradients but for the largest layer's are {(num_bytes - largest) / adam:.1%} of it; {adam / 1e6:.2f} and "
            f"{ours / 1e6:.2f} MB; never more than 25 %: one of parameters, gradients and two averages",
        )


def _plans(progress: Progress) -> Iterator[Row]:
    """Plans on two devices, in simulation: data parallel, and with states in shards."""
    progress("plans on two devices")
    program, cluster, num_parts = capture(*gpt(layers=4, hidden=256, batch=2)), even_cluster(2), 4
    ours, adams = with_adama(program, num_parts), with_update(accumulate_microbatches(program, num_parts), "adam")
    for planner, what in (("dp_even", "data parallel"), ("zero", "parameters, gradients and averages in shards")):
        peaks = [max(simulate(PLANNERS[planner](step, cluster), step, cluster).peak_bytes) for step in (ours, adams)]
        ratio = peaks[1] / peaks[0]
        yield sign_row(
            "models",
            f"larger model in the same memory, {what}",
            "1.26 to 3.14",
            f"{ratio:.2f}",
            is_so=ratio > 1.0,
            note="simulated peaks on 2 devices; theirs are of 8 GPUs in mixed precision; " + _WHY_SO_MUCH[planner],
        )


_IN_PLACE = "a program writes nothing in place, so old averages stay until the step ends"
_WHY_SO_MUCH = {"dp_even": _IN_PLACE, "zero": f"{_IN_PLACE}, and need more than the gradients, which are in shards here"}


def _by_formula() -> Iterator[Row]:
    """Computes the memory of parameters, gradients and averages from the formula, averages in shards on eight devices."""
    num_devices, num_layers = 8, 24
    averages, largest = 2.0 / num_devices, 1.0 / num_layers
    ratio = (2.0 + averages) / (1.0 + largest + averages)  # in bytes of the parameters
    yield fact_row(
        "models",
        f"larger model in the same memory, averages in shards on {num_devices} devices, {num_layers} equal layers",
        "1.26 to 3.14",
        f"{ratio:.2f}",
        is_so=1.26 <= ratio <= 3.14,
        band=WITHIN,
        kind=Kind.OWN,
        note="by the formula, in single precision and without activations; theirs were measured, beside torch and DeepSpeed",
    )


def _not_here() -> Iterator[Row]:
    """What a machine without GPUs cannot show."""
    claims = (
        ("memory", "saved, with the paper's models on GPUs", "up to 23 %", "needs GPUs"),
        ("speed", "steps per second beside Adam's on GPUs", "above 0.98", "needs GPUs"),
        ("losses", "rate of convergence", "O(1 / sqrt T), as Adam's", "a proof; what losses do is above"),
    )
    for figure, what, published, note in claims:
        yield not_here_row(figure, what, published, note)


def _speed(quick: bool, progress: Progress) -> Iterator[Row]:
    progress("speed")
    num_parts, num_steps = 4, 6 if quick else 100
    module = _module(layers=4, hidden=96)
    steps = [_stepper(module, make, num_parts) for make in (_ADAM, _ADAMA)]
    adam_s, ours_s = seconds_in_turns(steps, num_steps, num_warm_ups=3)
    ratio = adam_s / ours_s
    yield fact_row(
        "speed",
        "steps per second beside Adam's",
        "above 0.98",
        f"{ratio:.2f}",
        is_so=ratio >= 0.98,
        band=AT_LEAST,
        note=f"median of {num_steps} steps each, in turns, one core; torch's Adam, not fused; two averages pass through memory "
        "for each microbatch, and microbatches are of 128 tokens",
    )


def _losses(quick: bool, progress: Progress) -> Iterator[Row]:
    seeds, num_steps = (1, 60) if quick else (4, 300)
    ends: list[list[float]] = [[], []]
    for seed in range(seeds):
        for which, make in enumerate((_ADAM, _ADAMA)):
            progress(f"losses, seed {seed}, {'AdamA' if which else 'Adam'}")
            ends[which].append(_final_loss(make, seed, num_steps))
    spread = max(stdev(ends[0]), stdev(ends[1])) if seeds > 1 else float("nan")
    gap = mean(ends[1]) - mean(ends[0])
    yield fact_row(
        "losses",
        f"loss after {num_steps} steps of 4 microbatches, AdamA less Adam",
        "no visible difference",
        f"{gap:+.3f}",
        is_so=abs(gap) <= 2 * spread,
        band=SPREAD,
        note=f"means {mean(ends[1]):.3f} and {mean(ends[0]):.3f} of {seeds} seeds"
        + (f", spread {spread:.3f}" if seeds > 1 else ""),
    )


def reduced_bytes() -> Iterator[Row]:
    """Counts what a rank reduces in a step, in a group of one."""
    module = _module(layers=1, hidden=32)
    num_bytes = sum(p.numel() * p.element_size() for p in module.parameters())
    store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage] (documented as public)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        optimizer = AdamA(module.parameters(), group=dist.group.WORLD)
        with _Reduced() as reduced:
            _train(module, optimizer, _draw(manual(), torch.Generator().manual_seed(0), 4))
    finally:
        dist.destroy_process_group()
    yield fact_row(
        "3.3",
        "bytes that a rank reduces in a step of 4 microbatches, in bytes of the parameters",
        "2",
        f"{reduced.num_bytes / num_bytes:g}",
        is_so=reduced.num_bytes == 2 * num_bytes,
        band=EXACT,
        note="1 if gradients are added up first, 4 if each microbatch's are reduced",
    )


class _Reduced(TorchDispatchMode):
    """Counts the bytes of tensors that are reduced among ranks."""

    num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation."""
        if func is torch.ops.c10d.allreduce_.default:
            self.num_bytes += sum(x.numel() * x.element_size() for x in args[0])
        return func(*args, **(kwargs or {}))


class _Squares(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x).square().mean()


def _after(program: TensorProgram, sources: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    results = evaluate(program, sources)
    return {source: results[value] for source, value in program.updates.items()}


def _module(layers: int, hidden: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return gpt(layers=layers, hidden=hidden, vocabulary=NUM_CHARACTERS, sequence=_SEQUENCE)[0]


def _layers(module: nn.Module) -> Sequence[nn.Module]:
    return list(module.get_submodule("layers").children())


def _draw(text: torch.Tensor, generator: torch.Generator, num_parts: int) -> list[_Batch]:
    tokens, targets = draw(text, generator, _NUM_SEQUENCES, _SEQUENCE)
    return list(zip(tokens.chunk(num_parts), targets.chunk(num_parts), strict=True))


def _stepper(module: nn.Module, make: _Make, num_parts: int) -> Callable[[], None]:
    module = copy.deepcopy(module)
    optimizer, text, generator = make(module.parameters()), manual(), torch.Generator().manual_seed(0)

    def step() -> None:
        _train(module, optimizer, _draw(text, generator, num_parts))

    return step


def _train(module: nn.Module, optimizer: torch.optim.Optimizer, batches: list[_Batch]) -> float:
    total = 0.0
    for tokens, targets in batches:
        loss = module(tokens, targets) / len(batches)
        loss.backward()
        total += float(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    return total


def _peak(module: nn.Module, make: _Make, num_parts: int) -> int:
    module = copy.deepcopy(module)
    optimizer, batches = make(module.parameters()), _draw(manual(), torch.Generator().manual_seed(0), num_parts)
    _train(module, optimizer, batches)  # the averages are made
    averages = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor)]
    return peak_of(lambda: _train(module, optimizer, batches), [*module.parameters(), *averages])


def _final_loss(make: _Make, seed: int, num_steps: int) -> float:
    module, text, generator = _module(2, 64, seed), manual(), torch.Generator().manual_seed(seed)
    optimizer = make(module.parameters())
    losses = [_train(module, optimizer, _draw(text, generator, 4)) for _ in range(num_steps)]
    return mean(losses[-20:])
