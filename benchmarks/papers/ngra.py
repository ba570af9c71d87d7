"""NGra (arXiv 1810.08403): graphs that do not fit train in chunks; what operator motion, fusion and selective scheduling save."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import torch

from benchmarks.papers.bands import AT_MOST, EXACT, SUMMED_64
from benchmarks.papers.measured import seconds_in_turns
from benchmarks.papers.models.gnn import (
    Gat,
    GatedGcn,
    Gcn,
    GgNn,
    Graph,
    Grid,
    SagaLayer,
    Streaming,
    fused,
    num_chunks_for,
    rmat,
    streamed,
    unhoisted,
    whole,
    working_set_bytes,
)
from benchmarks.papers.rows import fact_row, not_here_row, own_row, sign_row
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Row
from dyorc.planner.memory import TensorCounter, peak_of

_ABOUT = """Graphs are drawn at random (R-MAT): the published ones have up to 232 million edges, and need GPUs. The device is
a limit on the bytes of tensors, which an accountant enforces. No link leads to it, so the bytes that would move are
counted."""

_Make = Callable[[int, int], SagaLayer]
_LAYERS: dict[str, _Make] = {"GCN": Gcn, "GG-NN": GgNn, "G-GCN": GatedGcn, "GAT": Gat}
_FEATURES = 32


def reproduce(*, quick: bool, progress: Progress) -> Study:
    """Returns the table, to be computed.

    Args:
        quick: Small graphs.
        progress: Hears what is done now.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    graph = rmat(10, 20_000) if quick else rmat(15, 1_000_000)
    x = torch.randn(graph.num_vertices, _FEATURES)
    parts: dict[str, Iterable[Row | Line]] = {
        "equality": equality(),
        "memory limits": _capped(graph, x, progress),
        "memory by chunks": _by_chunks(graph, x),
        "selective scheduling": _moved(graph, x),
        "operator motion and fusion": _faster(graph, x, progress),
        "PyTorch Geometric": _beside_geometric(graph, x),
        "not here": _multi(),
    }
    if quick:
        full = "32,768 vertices and a million edges"
        parts |= {name: unjudged(part, full) for name, part in parts.items() if name not in ("equality", "not here")}
    return Study(name="ngra", title="NGra (arXiv 1810.08403)", about=_ABOUT, parts=parts, is_quick=quick)


def equality() -> Iterator[Row]:
    """Compares outputs and gradients chunk by chunk with those of the whole graph, in float64."""
    graph = rmat(7, 600)
    for name, make in _LAYERS.items():
        layer, x = make(5, 4).double(), torch.randn(graph.num_vertices, 5, dtype=torch.float64)
        expected, error = _results(layer, lambda x, layer=layer: whole(layer, graph, x), x), 0.0
        for num_chunks in (1, 2, 4, 8):
            streaming = Streaming(Grid(graph, num_chunks))
            results = _results(layer, lambda x, s=streaming, layer=layer: streamed(layer, x, s), x)
            error = max(error, *(float((result - other).abs().max()) for result, other in zip(results, expected, strict=True)))
        yield fact_row(
            "correct",
            f"{name}: 1, 2, 4 and 8 chunks beside the whole graph",
            "the same",
            f"{error:.1g}",
            is_so=error < 1e-10,
            band=SUMMED_64,
            kind=Kind.OWN,
            note="largest error of outputs and all gradients, float64",
        )


def _capped(graph: Graph, x: torch.Tensor, progress: Progress) -> Iterator[Row]:
    for name, make in _LAYERS.items():
        progress(f"{name} under a memory limit")
        layer = make(_FEATURES, _FEATURES)
        full = peak_of(lambda layer=layer: _backward(whole(layer, graph, x)))
        limit = full // 4
        widths = (2 * _FEATURES, _FEATURES + 1, _FEATURES)
        num_chunks = num_chunks_for(graph, widths, limit)
        fits, streaming = _run_under(layer, graph, x, limit, num_chunks)
        fails = False
        try:
            with TensorCounter(limit):
                whole(layer, graph, x).sum().backward()
        except MemoryError:
            fails = True
        yield fact_row(
            "scale",
            f"{name}, {graph.num_edges:,} edges, a quarter of what the whole graph needs",
            "trains in chunks, does not otherwise",
            f"{'trains' if fits else 'does not train'} in {num_chunks} chunks; whole: {'fails' if fails else 'trains'}",
            is_so=fits and fails,
            band=EXACT,
            note=f"{full / 1e6:.1f} MB whole, {streaming / 1e6:.1f} in chunks",
        )


def _run_under(layer: SagaLayer, graph: Graph, x: torch.Tensor, limit: int, num_chunks: int) -> tuple[bool, int]:
    counter = TensorCounter(limit)
    try:
        streamed(layer, x, Streaming(Grid(graph, num_chunks), counter)).sum().backward()
    except MemoryError:
        return False, counter.peak_bytes
    return True, counter.peak_bytes


def _by_chunks(graph: Graph, x: torch.Tensor) -> Iterator[Row]:
    """Memory falls with the number of chunks, as the formula says, and bytes that move grow with it."""
    layer, peaks, moved = Gcn(_FEATURES, _FEATURES), list[int](), list[int]()
    for num_chunks in (1, 2, 4, 8):
        counter = TensorCounter()
        streaming = Streaming(Grid(graph, num_chunks), counter, selective=0.0)
        with torch.no_grad():
            streamed(layer, x, streaming)
        peaks.append(counter.peak_bytes)
        moved.append(streaming.moved_bytes)
    yield sign_row(
        "section 4",
        "device memory with 1, 2, 4 and 8 chunks",
        "falls by chunks, and by chunks squared for edges",
        ", ".join(f"{peak / 1e6:.2f}" for peak in peaks) + " MB",
        is_so=all(b < 0.8 * a for a, b in pairwise(peaks)),
        note="by a fifth or more each time",
    )
    widths = (_FEATURES, _FEATURES, _FEATURES)
    sets = [working_set_bytes(graph, num_chunks, widths) for num_chunks in (1, 2, 4, 8)]
    yield fact_row(
        "section 4",
        "device memory with 1, 2, 4 and 8 chunks, as part of our formula's working set",
        "at most 1",
        ", ".join(f"{peak / each:.2f}" for peak, each in zip(peaks, sets, strict=True)),
        is_so=all(peak <= each for peak, each in zip(peaks, sets, strict=True)),
        band=AT_MOST,
        kind=Kind.OWN,
        note="forward alone; the formula has room for the backward pass and for two buffers of sources",
    )
    vertex = graph.num_vertices * 4
    # Features and scales are loaded for the projection; for the update also what is gathered; targets need nothing here.
    fixed = vertex * (_FEATURES + 1) + vertex * (2 * _FEATURES + 1)
    expected = [fixed + num_chunks * vertex * _FEATURES for num_chunks in (1, 2, 4, 8)]
    yield fact_row(
        "section 4",
        "bytes to the device in a layer forward, 1, 2, 4 and 8 chunks",
        "P |V| F + |V| F",
        ", ".join(f"{each / 1e6:.2f}" for each in moved) + " MB",
        is_so=moved == expected,
        band=EXACT,
        kind=Kind.OWN,
        note="the formula, with what the two stages at vertices load; rows of empty chunks are not sent",
    )


def _moved(graph: Graph, x: torch.Tensor) -> Iterator[Row]:
    layer, moved = Gcn(_FEATURES, _FEATURES), dict[str, tuple[int, int]]()
    for order in ("natural", "random", "metis"):
        ordered, _ = graph.reordered(order)
        both: list[int] = []
        for selective in (0.0, 1.0):
            streaming = Streaming(Grid(ordered, 16), selective=selective)
            with torch.no_grad():
                streamed(layer, x, streaming)
            both.append(streaming.moved_bytes)
        moved[order] = both[0], both[1]
    for order, (everything, used) in moved.items():
        yield sign_row(
            "section 4",
            f"bytes to the device with selective scheduling, {order} order, 16 chunks",
            "fewer",
            f"{used / everything:.2f} of all rows",
            is_so=used < everything,
            note=f"{used / 1e6:.2f} MB",
        )


def _faster(graph: Graph, x: torch.Tensor, progress: Progress) -> Iterator[Row]:
    for name, make in _LAYERS.items():
        progress(f"{name}: operator motion and fusion")
        layer = make(_FEATURES, _FEATURES)
        runs = {
            "at edges": lambda layer=layer: _backward(unhoisted(layer, graph, x)),
            "at vertices": lambda layer=layer: _backward(whole(layer, graph, x)),
        }
        if layer.is_linear:
            runs["fused"] = lambda layer=layer: _backward(fused(layer, graph, x))
        medians = dict(zip(runs, seconds_in_turns(list(runs.values()), 3, num_warm_ups=1), strict=True))
        for key in list(runs)[1:]:
            ratio = medians["at edges"] / medians[key]
            yield sign_row(
                "13",
                f"{name}: speed with {'operator motion' if key == 'at vertices' else 'operator motion and fusion'}",
                "above 1",
                f"{ratio:.2f}",
                is_so=ratio > 1.0,
                note="beside all work for edges at edges; forward and backward, one core, medians of 3 in turns",
            )


def _beside_geometric(graph: Graph, x: torch.Tensor) -> Iterator[Row]:
    """PyTorch Geometric's convolution on the whole graph, if it is installed."""
    what = "GCN's speed on the whole graph beside PyTorch Geometric's, forward and backward"
    try:
        from torch_geometric.nn import GCNConv  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        note = "not installed: pip install torch-geometric"
        yield not_here_row("peers", what, "", note)
        return
    ours: SagaLayer = Gcn(_FEATURES, _FEATURES)
    theirs: Any = GCNConv(_FEATURES, _FEATURES, bias=False, add_self_loops=False)
    edges = torch.stack([graph.sources, graph.targets])
    runs = (lambda: _backward(fused(ours, graph, x)), lambda: _backward(torch.relu(theirs(x, edges))))
    ours_s, theirs_s = seconds_in_turns(runs, 3, num_warm_ups=1)
    ratio = theirs_s / ours_s
    note = "one core, medians of 3 in turns; it scatters messages, as its layers do by default"
    yield own_row("peers", what, f"{ratio:.2f}", note)


def _backward(y: torch.Tensor) -> None:
    y.sum().backward()


def _multi() -> Iterator[Row]:
    ring = "no GPU; the ring over gloo ranks computes the same outputs and gradients as one process (a test, three ranks)"
    for figure, what, published, why in (
        ("abstract", "speed on a GPU beside TensorFlow's", "about 4", "no GPU"),
        ("NeuGraph", "speed on one GPU beside TensorFlow's, GraphSAGE's and DGL's", "2.5 to 8.1", "no GPU"),
        ("NeuGraph", "speed on 8 GPUs beside TensorFlow's", "2.4 to 4.9", ring),
        ("NeuGraph", "graphs of Amazon, Reddit and Wikipedia, up to 8.6 M vertices", "train", "not here: graphs are drawn"),
        ("NGra", "CommNet", "trains", "not among the layers here"),
    ):
        yield not_here_row(figure, what, published, why)


def _results(layer: SagaLayer, run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    y = run(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), (x, *layer.parameters()))]
