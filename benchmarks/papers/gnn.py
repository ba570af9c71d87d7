"""Architectural implications of graph networks (IEEE CAL 2020): which stage takes longest, by model, graph and width."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from statistics import median
from typing import TypeAlias

import torch

from benchmarks.papers.bands import EXACT, MOST, SEVERAL
from benchmarks.papers.measured import seconds_in_turns
from benchmarks.papers.models.gnn import (
    Advice,
    Gat,
    GatedGcn,
    Gcn,
    GgNn,
    Graph,
    Order,
    Profile,
    SagaLayer,
    Sage,
    advised,
    fits,
    profile,
    random_graph,
    rmat,
    tuned,
    whole_bytes,
)
from benchmarks.papers.models.gnn.profile import roofline
from benchmarks.papers.rows import fact_row, not_here_row, own_row, sign_row
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Row

_ABOUT = """The paper read a GPU's counters, in two frameworks. Here each stage is timed on one core, and bytes and flops
follow from shapes. Graphs are drawn at random: with a power law (R-MAT), and with even degrees."""

_Profiles: TypeAlias = dict[tuple[str, str, int, int], Profile]
"""By layer, kind of graph, degree and width."""
_LAYERS: dict[str, Callable[[int, int], SagaLayer]] = {"GCN": Gcn, "SAGE": Sage, "GG-NN": GgNn, "G-GCN": GatedGcn, "GAT": Gat}
_STAGES = ("vertices", "scatter", "edges", "gather")


def reproduce(*, quick: bool, progress: Progress) -> Study:
    """Returns the table, to be computed: all layers on all graphs.

    Args:
        quick: Small graphs.
        progress: Hears what is done now.
    """
    torch.set_num_threads(1)
    scale, degrees, widths = (9, (2, 32), (16, 256)) if quick else (11, (2, 8, 32, 128), (16, 64, 256))
    profiles: _Profiles = {}
    parts: dict[str, Iterable[Row | Line]] = {
        **{f"graphs of degree {degree}": _profiled(profiles, scale, degree, widths, progress) for degree in degrees},
        "finding 1": _dominants(profiles),
        "finding 2": _scatters(profiles),
        "finding 3": _fusions(profiles),
        "finding 4": _products(profiles),
        "finding 5": _attention(profiles),
        "finding 6": _locality(2**scale),
        "advice": _advice(scale, degrees, 3 if quick else 9, progress),
        "not here": _not_here(),
        "roofline": _roof(),
    }
    left_out: tuple[str, ...] = ()
    if quick:
        parts |= {name: unjudged(part, "graphs of 2,048 vertices") for name, part in parts.items() if name not in _OF_ANY_SIZE}
        left_out = ("graphs of degree 8", "graphs of degree 128", "width 64")
    title = "Architectural implications of graph networks (IEEE CAL 19)"
    return Study(name="gnn", title=title, about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


_OF_ANY_SIZE = ("finding 2", "not here", "roofline")


def _profiled(profiles: _Profiles, scale: int, degree: int, widths: Sequence[int], progress: Progress) -> Iterator[Row]:
    """Profiles all layers on graphs of one degree, for the findings."""
    graphs: dict[str, Graph] = {
        "power law": rmat(scale, degree * 2**scale),
        "even": random_graph(2**scale, degree * 2**scale),
    }
    for (name, make), (kind, graph), width in product(_LAYERS.items(), graphs.items(), widths):
        progress(f"{name}, {kind} graph of degree {degree}, width {width}")
        profiles[name, kind, degree, width] = profile(make(width, width), graph, torch.randn(graph.num_vertices, width))
    yield from ()


def _dominants(profiles: _Profiles) -> Iterator[Row]:
    counts = Counter(each.dominant for each in profiles.values())
    yield fact_row(
        "finding 1",
        f"stages that take longest somewhere, of {len(_STAGES)}",
        "no fixed bottleneck",
        str(len(counts)),
        is_so=len(counts) >= 3,
        band=MOST,
        note=", ".join(f"{stage} {counts[stage]}" for stage in _STAGES) + f" of {len(profiles)} cases",
    )
    for name in _LAYERS:
        of_layer = Counter(each.dominant for key, each in profiles.items() if key[0] == name)
        ours = ", ".join(f"{stage} {of_layer[stage]}" for stage in _STAGES if of_layer[stage])
        is_so, what = len(of_layer) >= 2, f"{name}: what takes longest"
        yield fact_row("finding 1", what, "depends on graph and width", ours, is_so=is_so, band=SEVERAL)


def _scatters(profiles: _Profiles) -> Iterator[Row]:
    flops = max(stage.flops for each in profiles.values() for stage in each.stages if stage.name == "scatter")
    ours, note = f"{flops:g}", "counted while it runs"
    yield fact_row("finding 2", "flops of the scatter", "0: pure movement", ours, is_so=flops == 0, band=EXACT, note=note)


def _fusions(profiles: _Profiles) -> Iterator[Row]:
    for name in ("GCN", "SAGE", "GG-NN"):
        ratios = sorted(each.fused_ratio for key, each in profiles.items() if key[0] == name and each.fused_ratio is not None)
        wins = sum(ratio > 1.0 for ratio in ratios)
        yield sign_row(
            "finding 3",
            f"{name}: speed of scatter and gather as one sparse product",
            "above 1",
            f"{ratios[len(ratios) // 2]:.2f}",
            is_so=ratios[len(ratios) // 2] > 1.0,
            note=f"median; {ratios[0]:.2f} to {ratios[-1]:.2f}, above 1 in {wins} of {len(ratios)} cases; advised there only",
        )


def _products(profiles: _Profiles) -> Iterator[Row]:
    share = [
        sum(stage.time_s for stage in each.stages if stage.name == "vertices") / sum(stage.time_s for stage in each.stages)
        for each in profiles.values()
    ]
    below = sum(part < 0.5 for part in share)
    what, ours = "cases in which products of matrices take less than half of the time", f"{below} of {len(share)}"
    note = "a quarter of the cases or more is often"
    yield sign_row("finding 4", what, "often not the hot spot", ours, is_so=below > len(share) / 4, note=note)


def _attention(profiles: _Profiles) -> Iterator[Row]:
    """Attention's weights are summed up together with the messages, so that its gather takes more."""
    shares = {name: _shares(profiles, name, ("edges", "gather")) for name in ("GCN", "GAT")}
    yield sign_row(
        "finding 5",
        "part of the time in edges and gather: GAT's, beside GCN's",
        "more, by the softmax",
        f"{shares['GAT']:.2f} and {shares['GCN']:.2f}",
        is_so=shares["GAT"] > shares["GCN"],
        note="medians of all graphs and widths",
    )
    sparse = median([_shares(profiles, name, ("scatter", "edges", "gather")) for name in _LAYERS])
    yield sign_row(
        "finding 5",
        "part of the time in scatter, edges and gather: what sets these networks apart",
        "most",
        f"{sparse:.2f}",
        is_so=sparse > 0.5,
        note="median of the layers' medians",
    )


def _shares(profiles: _Profiles, name: str, stages: Sequence[str]) -> float:
    return median(
        sum(stage.time_s for stage in each.stages if stage.name in stages) / sum(stage.time_s for stage in each.stages)
        for key, each in profiles.items()
        if key[0] == name
    )


def _locality(num_vertices: int) -> Iterator[Row]:
    """Rows of features are read in whole lines of the cache, single numbers, as PageRank's, are not. Both read as many bytes."""
    torch.manual_seed(0)
    num_numbers, runs, widths = 2**18, list[Callable[[], object]](), (1, 64)  # a millisecond: less than a turn of the core
    for width in widths:
        table, read = torch.randn(num_vertices, width), torch.randint(num_vertices, (num_numbers // width,))
        out = torch.empty(len(read), width)
        runs.append(lambda table=table, read=read, out=out: torch.index_select(table, 0, read, out=out))
    rates = [4 * num_numbers / each_s for each_s in seconds_in_turns(runs, 25, num_warm_ups=2)]
    yield sign_row(
        "finding 6",
        "bytes per second of a scatter: rows of 64 features / single numbers",
        "above 1",
        f"{rates[1] / rates[0]:.1f}",
        is_so=rates[1] > rates[0],
        note=f"{rates[1] / 1e9:.1f} and {rates[0] / 1e9:.2f} GB/s; the paper compares with PageRank",
    )


def _advice(scale: int, degrees: Sequence[int], num_rounds: int, progress: Progress) -> Iterator[Row]:
    """Runs layers as their profiles advise, and in other ways, in half of the memory that the denser of two graphs needs."""
    sparse = random_graph(2**scale, degrees[0] * 2**scale)
    dense = rmat(scale, degrees[-1] * 2**scale)
    for name, features, hidden in (("GCN", 256, 16), ("GCN", 16, 256), ("SAGE", 64, 64), ("G-GCN", 64, 64), ("GAT", 64, 64)):
        layer = _LAYERS[name](features, hidden)
        x = torch.randn(2**scale, features)
        limit_bytes = whole_bytes(layer, dense, x) // 2
        for kind, graph in ((f"even graph of degree {degrees[0]}", sparse), (f"power law graph of degree {degrees[-1]}", dense)):
            what = f"{name}, {features} to {hidden}, {kind}"
            progress(f"{what}: every way")
            yield _advised_row(what, layer, graph, x, limit_bytes, num_rounds)


def _advised_row(what: str, layer: SagaLayer, graph: Graph, x: torch.Tensor, limit_bytes: int, num_rounds: int) -> Row:
    tuned_advice = tuned(layer, graph, x, limit_bytes=limit_bytes, num_runs=num_rounds).profile.advice
    ways = {_way(each): each for each in [*_other_ways(layer, max(tuned_advice.num_chunks, 4)), tuned_advice]}
    fitting = [name for name, advice in ways.items() if fits(layer, graph, x, advice, limit_bytes)]
    steps = [_step(advised(layer, graph, ways[name]), x) for name in fitting]
    seconds = dict(zip(fitting, seconds_in_turns(steps, num_rounds, num_warm_ups=1), strict=True))
    chosen, others = _way(tuned_advice), [seconds[name] for name in fitting if name != _way(tuned_advice)]
    is_good = chosen in seconds
    listed = ", ".join(f"{name} {each_s * 1e3:.1f} ms" for name, each_s in seconds.items())
    too_large = [name for name in ways if name not in seconds]
    what = f"{what}: seconds of a step as advised / in the quickest other way that fits"
    note = f"advised: {chosen}, as {'; '.join(tuned_advice.reasons[: 1 if tuned_advice.num_chunks > 1 else 3])}. {listed}"
    note += f"; more than the memory: {', '.join(too_large)}" if too_large else ""
    if not is_good:
        return fact_row("advice", what, "fits", "does not fit", is_so=False, band=EXACT, kind=Kind.OWN, note=note)
    return own_row("advice", what, f"{seconds[chosen] / min(others):.2f}" if others else "only the advised way fits", note)


def _other_ways(layer: SagaLayer, num_chunks: int) -> Iterator[Advice]:
    yield from (
        Advice(num_chunks=1, order=Order.VERTICES),
        Advice(num_chunks=1, order=Order.EDGES),
        Advice(num_chunks=num_chunks),
    )
    if layer.is_linear:
        yield from (Advice(num_chunks=1, order=order, fuse=True) for order in (Order.VERTICES, Order.SUMS))
        yield Advice(num_chunks=1, order=Order.SUMS)


def _way(advice: Advice) -> str:
    if advice.num_chunks > 1:
        return f"{advice.num_chunks} chunks"
    return f"products at {advice.order}" + (", sparse" if advice.fuse else "")


def _step(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Callable[[], object]:
    def step() -> None:
        run(x).square().sum().backward()

    return step


def _not_here() -> Iterator[Row]:
    for what, why in {
        "use of a GPU's caches and units by its counters": "no GPU",
        "GraphSAGE with an LSTM as aggregator": "not among the layers here",
        "DGL beside PyTorch Geometric": "stages are our own here; PyTorch Geometric is in NGra's table",
    }.items():
        yield not_here_row("others", what, "depends on graph and width", why)


def _roof() -> Iterator[Row]:
    flops_per_s, bytes_per_s = roofline()
    yield own_row(
        "roofline",
        "flops for each byte above which this machine computes rather than moves",
        f"{flops_per_s / bytes_per_s:.1f}",
        f"{flops_per_s / 1e9:.0f} Gflop/s, {bytes_per_s / 1e9:.1f} GB/s, one core; caches were not counted",
    )
