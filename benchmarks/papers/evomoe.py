"""EvoMoE (arXiv 2112.14397): losses of a small model of characters, by steps and by flops, against Switch, Hash and dense."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import mean, stdev

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.papers.bands import EXACT, MODELLED, ROUNDED_64
from benchmarks.papers.characters import NUM_CHARACTERS, draw, manual
from benchmarks.papers.models.evomoe import (
    DenseToSparseGate,
    Diversity,
    EvolvingExperts,
    HashGate,
    LocalExperts,
    MixtureLayer,
    Schedule,
    SwitchGate,
)
from benchmarks.papers.rows import fact_row, not_here_row, number_row, sign_row
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Row
from dyorc.planner.models.blocks import FeedForward, Layer, SelfAttention, token_loss

_ABOUT = """A small model of characters learns the text of Python's manual: two layers with attention, four experts in the
second one. The published models are a thousand times larger and trained a thousand times longer, so another gate may win.
Losses are on text that was held out, after equally many steps and after equally many flops."""

_SEQUENCE, _NUM_SEQUENCES = 32, 16
_HIDDEN, _EXPERTS, _BALANCE = 64, 4, 0.01
_CHECK_EVERY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one model is trained.

    Attributes:
        gate: Of its experts; none for a dense model.
        shared_steps: For so many steps there is one expert.
        masked_ratio: Of the experts that come of it.
        balance: The factor of the loss of balance.
    """

    gate: str = ""
    shared_steps: int = 0
    masked_ratio: float = 0.0
    balance: float = 0.0


def recipes(num_steps: int) -> Mapping[str, Recipe]:
    """Returns how each model is trained."""
    shared = num_steps // 5
    return {
        "dense": Recipe(),
        "Switch": Recipe(gate="switch", balance=_BALANCE),
        "Hash": Recipe(gate="hash"),
        "EvoMoE": Recipe(gate="dts", shared_steps=shared, masked_ratio=0.1),
        "EvoMoE, equal copies": Recipe(gate="dts", shared_steps=shared),
        "EvoMoE, sparse at once": Recipe(gate="switch", shared_steps=shared, masked_ratio=0.1, balance=_BALANCE),
    }


@dataclass(slots=True)
class Curve:
    """What one training saw: at each check the loss on held-out text, and flops so far; and of the gate, what it did."""

    losses: list[float] = field(default_factory=list[float])
    flops: list[float] = field(default_factory=list[float])
    active: list[float] = field(default_factory=list[float])
    entropy: float = 0.0

    def loss_at(self, flops: float) -> float:
        """Returns the last loss before so many flops were spent."""
        return next(
            (loss for loss, spent in zip(self.losses[::-1], self.flops[::-1], strict=True) if spent <= flops), self.losses[0]
        )


def reproduce(*, quick: bool, progress: Progress) -> Study:
    """Returns the table, to be computed: all models are trained, and compared.

    Args:
        quick: One seed and few steps.
        progress: Hears what is done now.
    """
    torch.set_num_threads(1)
    num_seeds, num_steps = (1, 60) if quick else (3, 1000)
    curves_of: dict[str, list[Curve]] = {}
    parts: dict[str, Iterable[Row | Line]] = {
        **{f"training {name}": _trained(curves_of, name, num_seeds, num_steps, progress) for name in recipes(num_steps)},
        "curves": curves(curves_of, num_steps),
        "by steps": _by(curves_of, num_steps, by_flops=False),
        "by flops": _by(curves_of, num_steps, by_flops=True),
        "the gate": _of_gate(curves_of),
        "costs": costs(),
        "not here": _not_here(),
    }
    if quick:
        parts |= {name: unjudged(parts[name], "3 seeds and 1,000 steps") for name in ("by steps", "by flops", "the gate")}
    return Study(name="evomoe", title="EvoMoE (arXiv 2112.14397)", about=_ABOUT, parts=parts, is_quick=quick)


def _trained(curves_of: dict[str, list[Curve]], name: str, num_seeds: int, num_steps: int, progress: Progress) -> Iterator[Row]:
    """Trains one model with each seed, for the comparisons."""
    each: list[Curve] = []
    for seed in range(num_seeds):
        progress(f"{name}, seed {seed}")
        each.append(train(recipes(num_steps)[name], seed, num_steps))
    curves_of[name] = each
    yield from ()


def curves(curves_of: Mapping[str, list[Curve]], num_steps: int) -> Iterator[Line]:
    """Yields each model's losses over steps, then over flops: the seeds' mean, least and most."""
    steps = [float(step) for step in range(1, num_steps + 1) if _is_check(step, num_steps)]
    for panel in ("steps", "flops"):
        for name, each in curves_of.items():
            losses = list(zip(*(curve.losses for curve in each), strict=True))
            spent = [mean(at) for at in zip(*(curve.flops for curve in each), strict=True)]
            yield Line(
                panel=panel,
                height="loss on text that was held out",
                what=name,
                xs=_rounded(steps if panel == "steps" else spent),
                means=_rounded(mean(at) for at in losses),
                lows=_rounded(min(at) for at in losses),
                highs=_rounded(max(at) for at in losses),
            )


def _rounded(numbers: Iterable[float]) -> tuple[float, ...]:
    """To five digits: more cannot be seen."""
    return tuple(float(f"{number:.5g}") for number in numbers)


def _is_check(step: int, num_steps: int) -> bool:
    """Whether the loss is measured after so many steps."""
    return step % _CHECK_EVERY == 0 or step == num_steps


def _by(curves: Mapping[str, list[Curve]], num_steps: int, *, by_flops: bool) -> Iterator[Row]:
    budget = min(curve.flops[-1] for each in curves.values() for curve in each)
    ends = {name: [c.loss_at(budget) if by_flops else c.losses[-1] for c in each] for name, each in curves.items()}
    ours = mean(ends["EvoMoE"])
    for name, losses in ends.items():
        if name == "EvoMoE":
            continue
        gap = mean(losses) - ours
        spread = max(stdev(losses), stdev(ends["EvoMoE"])) if len(losses) > 1 else 0.0
        yield sign_row(
            "by flops" if by_flops else "by steps",
            f"loss of {name} above EvoMoE's, after {f'{budget:.2g} flops' if by_flops else f'{num_steps} steps'}",
            "above 0",
            f"{gap:+.3f}",
            is_so=gap > spread,
            note=f"{mean(losses):.3f} and {ours:.3f}; {len(losses)} seeds, spread {spread:.3f}",
        )


def _of_gate(all_curves: Mapping[str, list[Curve]]) -> Iterator[Row]:
    curves = all_curves["EvoMoE"]
    first = mean(max(curve.active) for curve in curves)
    last = mean(curve.active[-1] for curve in curves)
    entropy = mean(curve.entropy for curve in curves)
    yield number_row(
        "3.3",
        "experts that a token goes to at most: all",
        float(_EXPERTS),
        first,
        band=MODELLED,
        note="bytes and flops of experts are proportional to it",
    )
    yield number_row("3.3", "experts that a token goes to in the end", 1.0, last)
    balance = "balanced without a loss for it"
    yield sign_row(
        "3.3", "entropy of the experts' loads in the end", balance, f"{entropy:.2f}", is_so=entropy > 0.5, note="1: equal loads"
    )


def costs() -> Iterator[Row]:
    """Yields what the gate costs by the number of experts that tokens go to, and what it is when it is cold."""
    torch.manual_seed(0)
    x = torch.randn(256, _HIDDEN, dtype=torch.float64)
    experts = LocalExperts(FeedForward(_HIDDEN, 4 * _HIDDEN) for _ in range(_EXPERTS)).double()
    gate = DenseToSparseGate(_HIDDEN, _EXPERTS, Schedule(start=4.0, end=0.05, decay_steps=2), 10**9).double()
    ratios, active = list[float](), list[float]()
    for gate.step in range(3):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            routing = gate(x)
            experts(x, routing.weights)
        in_gate = 2 * len(x) * _HIDDEN * _EXPERTS
        active.append(routing.num_active)
        ratios.append((counter.get_total_flops() - in_gate) / (routing.num_active * len(x) * 16 * _HIDDEN**2))
    is_so = all(abs(ratio - 1) < 1e-9 for ratio in ratios)
    yield fact_row(
        "3.3",
        "flops of experts / flops of one expert for each token and each expert that it goes to",
        "1",
        ", ".join(f"{ratio:.6g}" for ratio in ratios),
        is_so=is_so,
        band=EXACT,
        kind=Kind.OWN,
        note=f"tokens go to {', '.join(f'{each:.2f}' for each in active)} experts; the all-to-all sends the same",
    )
    gate.eval()
    with torch.no_grad():
        routing, logits = gate(x), gate.logits(x)
        best = torch.softmax(logits, -1).max(-1)
        each = torch.stack([experts[int(e)](token) * w for token, w, e in zip(x, best.values, best.indices, strict=True)])
        error = float((experts(x, routing.weights) - each).abs().max())
    yield fact_row(
        "3.3",
        "outputs in evaluation beside those of the best expert alone, times its weight",
        "the same",
        f"{error:.1g}",
        is_so=error < 1e-12,
        band=ROUNDED_64,
        kind=Kind.OWN,
        note="largest error, float64",
    )


def _not_here() -> Iterator[Row]:
    for what, published, why in (
        ("RoBERTa, GPT and machine translation: scores beside Switch's and Hash's", "better", "needs GPUs for weeks"),
        ("scores beside BASE's and StableMoE's", "better", "these two gates are not among those here"),
    ):
        yield not_here_row("abstract", what, published, why)


class _Tokens(nn.Module):
    """Gives experts the tokens' numbers, which some gates read."""

    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        self.experts = experts
        self.tokens: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.experts(x, self.tokens)


class _Model(nn.Module):
    def __init__(self, recipe: Recipe, num_steps: int) -> None:
        super().__init__()
        self._recipe, self._num_steps = recipe, num_steps
        self.embedding = nn.Embedding(NUM_CHARACTERS, _HIDDEN)
        self.positions = nn.Parameter(torch.randn(_SEQUENCE, _HIDDEN) * 0.02)
        expert = FeedForward(_HIDDEN, 4 * _HIDDEN)
        self.evolving = _Tokens(EvolvingExperts(expert)) if recipe.shared_steps else None
        experts = self.evolving or (_Tokens(_mixture(recipe, num_steps)) if recipe.gate else expert)
        plain = FeedForward(_HIDDEN, 4 * _HIDDEN)
        self.layers = nn.ModuleList(Layer(_HIDDEN, SelfAttention(_HIDDEN, 4, is_causal=True), part) for part in (plain, experts))
        self.head = nn.Linear(_HIDDEN, NUM_CHARACTERS, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        for part in self.modules():
            if isinstance(part, _Tokens):
                part.tokens = tokens
        x = self.embedding(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return token_loss(self.head(x), targets)

    def spawn(self) -> None:
        """Makes experts of the shared one."""
        evolving = self.evolving.experts if self.evolving else None
        assert isinstance(evolving, EvolvingExperts)
        diversity = Diversity(masked_ratio=self._recipe.masked_ratio)
        evolving.spawn(_EXPERTS, lambda: _gate(self._recipe, self._num_steps), diversity)

    def mixture(self) -> MixtureLayer | None:
        """Returns the layer with a gate, if there is one now."""
        return next((part for part in self.modules() if isinstance(part, MixtureLayer)), None)

    def flops_per_token(self) -> float:
        """Returns the flops of a step for each token: six for each weight that it is multiplied with."""
        layer, expert = 12 * _HIDDEN**2, 8 * _HIDDEN**2
        mixture = self.mixture()
        active = mixture.routing.num_active if mixture is not None and mixture.routing is not None else 1.0
        return 6.0 * (2 * layer - expert + active * expert + _HIDDEN * NUM_CHARACTERS)


def _gate(recipe: Recipe, num_steps: int) -> nn.Module:
    match recipe.gate:
        case "switch":
            return SwitchGate(_HIDDEN, _EXPERTS)
        case "hash":
            return HashGate(NUM_CHARACTERS, _EXPERTS)
        case _:
            return DenseToSparseGate(_HIDDEN, _EXPERTS, Schedule(decay_steps=2 * num_steps // 5), num_steps // 2)


def _mixture(recipe: Recipe, num_steps: int) -> MixtureLayer:
    return MixtureLayer(_gate(recipe, num_steps), LocalExperts(FeedForward(_HIDDEN, 4 * _HIDDEN) for _ in range(_EXPERTS)))


def train(recipe: Recipe, seed: int, num_steps: int) -> Curve:
    """Trains one model."""
    torch.manual_seed(seed)
    model, curve, flops = _Model(recipe, num_steps), Curve(), 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    text, held_out = _texts()
    checks = draw(held_out, torch.Generator().manual_seed(1), 4 * _NUM_SEQUENCES, _SEQUENCE)
    generator = torch.Generator().manual_seed(seed)
    for step in range(num_steps):
        if recipe.shared_steps and step == recipe.shared_steps:
            known = {id(parameter) for parameter in model.parameters()}
            model.spawn()
            optimizer.add_param_group({"params": [p for p in model.parameters() if id(p) not in known]})
        mixture = model.mixture()
        if mixture is not None and isinstance(mixture.gate, DenseToSparseGate):
            mixture.gate.step = step - recipe.shared_steps
        loss = model(*draw(text, generator, _NUM_SEQUENCES, _SEQUENCE))
        if mixture is not None and mixture.routing is not None and recipe.balance:
            loss = loss + recipe.balance * mixture.routing.balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        flops += model.flops_per_token() * _NUM_SEQUENCES * _SEQUENCE
        if mixture is not None and mixture.routing is not None:
            curve.active.append(mixture.routing.num_active)
            curve.entropy = mixture.routing.load_entropy
        if _is_check(step + 1, num_steps):
            curve.losses.append(_checked(model, checks))
            curve.flops.append(flops)
    return curve


@torch.no_grad()
def _checked(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    model.eval()
    loss = float(model(*batch))
    model.train()
    return loss


def _texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the text, and the tenth of it that is held out."""
    text = manual()
    return text[: 9 * len(text) // 10], text[9 * len(text) // 10 :]
