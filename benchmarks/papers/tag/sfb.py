"""Sufficient factor broadcasting: where it begins to be worth it, and what it saves."""

from collections.abc import Iterator

import torch
from torch import nn

from benchmarks.papers.measured import program_of
from benchmarks.papers.rows import ratio_row, sign_row
from benchmarks.papers.table import Kind, Row
from benchmarks.papers.tag.searching import MODELS, Searching, at_rooflines
from dyorc.planner.cluster import even_cluster
from dyorc.planner.cluster.published import tag_cluster
from dyorc.planner.planners.tag.duplicate import duplication_of, solve
from dyorc.planner.planners.tag.group_actions import SearchContext
from dyorc.planner.planners.tag.policy_network import PolicyNetwork
from dyorc.planner.program import capture

_BREAK_EVEN = {(768, 768): 768, (25_088, 4096): 7043}
"""Samples below which gathering both factors of a gradient of this shape moves less than summing it."""


class _Product(nn.Module):
    """A weight whose gradient is the product of its input and of what comes with the batch."""

    def __init__(self, features: int, other: int) -> None:
        super().__init__()
        self.product = nn.Linear(features, other, bias=False)

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (self.product(x) * weights).sum()


def break_even(ratio: float) -> Iterator[Row]:
    """Where the integer program begins to sum the gradient, if computing costs nothing."""
    cluster = even_cluster(2, flops_per_s=1e24, latency_s=0.0)
    for (features, other), published_samples in _BREAK_EVEN.items():
        below, above = 2, 4 * published_samples
        while above - below > max(ratio * published_samples, 2):
            batch = (below + above) // 4 * 2
            with torch.device("meta"):
                module, inputs = _Product(features, other), (torch.randn(batch, features), torch.randn(batch, other))
            context = SearchContext(capture(module, inputs), cluster)
            is_gathered = bool(solve(duplication_of(context, context.data_parallel)))
            below, above = (batch, above) if is_gathered else (below, batch)
        what = f"samples up to which gathered factors beat the sum of a gradient of {features} x {other}"
        note = "found by the integer program, beside our own formula 2fh / (f + h)"
        yield ratio_row("SFB", what, published_samples, above, kind=Kind.OWN, note=note)


def duplication(network: PolicyNetwork | None, name: str, playouts: int) -> Iterator[Row]:
    """Yields the seconds of data parallelism and of the search's best for a model, without and with it."""
    cluster = at_rooflines(tag_cluster([("V100", 1, 8e9), ("V100", 1, 8e9)]))
    searching = Searching(program_of(MODELS[name], batch=6), cluster)
    best = searching.best_after(network, (playouts,))[playouts]
    on_s = float("inf")  # the planner tries it on data parallelism, too, so each plan is at least as good as that with it
    for plan, actions in (("data parallelism", searching.data_parallel), (f"best of {playouts} playouts", best)):
        off_s, on_s = searching.simulated_s(actions), min(on_s, searching.simulated_s(actions, duplicate=True))
        what = f"{name}, batch 6, 2 machines with 1 V100: seconds of {plan}, SFB off / on"
        yield _off_on(what, off_s, on_s)


def _off_on(what: str, off_s: float, on_s: float) -> Row:
    is_less = on_s < 0.999 * off_s
    why = "nothing is worth it: products over few features for many tokens, or nothing left to sum"
    note = f"{off_s / on_s:.2f} times as fast; figures of the paper are not known" if is_less else why
    return sign_row("SFB", what, "less with it", f"{off_s:.4g} / {on_s:.4g}", is_so=is_less, note=note)
