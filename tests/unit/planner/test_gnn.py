"""Graph networks: chunk by chunk they compute what they compute on a whole graph, in the memory of a chunk."""

from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch

from benchmarks.papers import ngra
from benchmarks.papers.models.gnn import (
    Advice,
    Gat,
    GatedGcn,
    Gcn,
    GgNn,
    Graph,
    Grid,
    Order,
    SagaLayer,
    Sage,
    Streaming,
    advised,
    fused,
    grid_graph,
    num_chunks_for,
    profile,
    random_graph,
    rmat,
    streamed,
    sums_first,
    tuned,
    unhoisted,
    whole,
    whole_bytes,
)
from benchmarks.papers.table import Relation
from dyorc.planner.memory import TensorCounter, peak_of

_FEATURES = 6
_LAYERS: list[Callable[[int, int], SagaLayer]] = [Gcn, Sage, GgNn, GatedGcn, Gat]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.manual_seed(0)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(params=_LAYERS, ids=lambda layer: layer.__name__)
def layer(request: pytest.FixtureRequest) -> SagaLayer:
    return request.param(_FEATURES, 5).double()


def results(layer: SagaLayer, run: Callable[[torch.Tensor], torch.Tensor], graph: Graph) -> list[torch.Tensor]:
    """Returns the output and all gradients."""
    x = torch.linspace(-1, 1, graph.num_vertices * _FEATURES, dtype=torch.float64).view(-1, _FEATURES).cos().requires_grad_()
    y = run(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), (x, *layer.parameters()))]


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor], rtol: float = 0.0) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=1e-10)


@pytest.mark.parametrize("num_chunks", [1, 2, 4, 8])
@pytest.mark.parametrize("selective", [0.0, 1.0])
def test_chunk_by_chunk_is_the_whole(layer: SagaLayer, num_chunks: int, selective: float) -> None:
    graph = rmat(6, 300)
    streaming = Streaming(Grid(graph, num_chunks), selective=selective)
    found = results(layer, lambda x: streamed(layer, x, streaming), graph)
    assert_equal(found, results(layer, lambda x: whole(layer, graph, x), graph))


def test_moving_work_to_vertices_and_sparse_products_change_nothing(layer: SagaLayer) -> None:
    graph = random_graph(40, 200)
    expected = results(layer, lambda x: whole(layer, graph, x), graph)
    assert_equal(results(layer, lambda x: unhoisted(layer, graph, x), graph), expected)
    for run in (fused, sums_first):
        if layer.is_linear:
            assert_equal(results(layer, lambda x, run=run: run(layer, graph, x), graph), expected)
        else:
            with pytest.raises(ValueError, match="computes something at edges"):
                run(layer, graph, torch.zeros(40, _FEATURES))


def test_all_that_can_be_advised_computes_the_same(layer: SagaLayer) -> None:
    graph = random_graph(40, 200)
    expected = results(layer, lambda x: whole(layer, graph, x), graph)
    for num_chunks, order, fuse in product((1, 4), Order, (False, True)):
        if layer.is_linear or num_chunks > 1 or not (fuse or order is Order.SUMS):
            run = advised(layer, graph, Advice(num_chunks=num_chunks, order=order, fuse=fuse))
            assert_equal(results(layer, run, graph), expected)


def test_a_graph_is_run_whole_where_it_fits_and_in_chunks_where_it_does_not() -> None:
    """Two graphs with as many vertices; one has twenty times the edges."""
    layer, limit_bytes = GatedGcn(_FEATURES, 16).double(), 4_000_000
    for graph, is_whole in ((random_graph(512, 1_000), True), (rmat(9, 20_000), False)):
        x = torch.zeros(graph.num_vertices, _FEATURES, dtype=torch.float64)
        counter = TensorCounter(limit_bytes)
        found = tuned(layer, graph, x, limit_bytes=limit_bytes, counter=counter, num_runs=1)
        advice, needed_bytes = found.profile.advice, whole_bytes(layer, graph, x)
        assert (needed_bytes <= limit_bytes) == is_whole == (advice.num_chunks == 1)
        assert advice.reasons[0] == f"the whole graph needs {needed_bytes:,} of 4,000,000 bytes"
        expected = results(layer, lambda x, graph=graph: whole(layer, graph, x), graph)
        assert_equal(results(layer, found.run, graph), expected, rtol=1e-12)  # sums of thousands
        assert (counter.peak_bytes == 0) == is_whole
        if is_whole:
            with TensorCounter(limit_bytes):
                found.run(x).sum().backward()
        else:
            with pytest.raises(MemoryError), TensorCounter(limit_bytes):
                whole(layer, graph, x).sum().backward()


def test_the_memory_of_a_sparse_product_is_counted_and_has_no_tensor_for_edges() -> None:
    graph, layer = random_graph(64, 20_000), Gcn(_FEATURES, 16)
    x = torch.randn(64, _FEATURES)
    at_edges, sparse = (peak_of(lambda run=run: run(layer, graph, x)) for run in (whole, fused))
    indices_bytes = 2 * 8 * graph.num_edges
    assert indices_bytes < sparse < 2 * indices_bytes
    assert at_edges > 4 * 16 * graph.num_edges


def test_a_linear_layer_needs_no_chunks_where_a_sparse_product_fits() -> None:
    graph, layer = random_graph(64, 20_000), Gcn(16, 16).double()
    x = torch.randn(64, 16, dtype=torch.float64)
    needed_bytes = [peak_of(lambda run=run: run(layer, graph, x).sum().backward()) for run in (fused, whole)]
    assert needed_bytes[0] < needed_bytes[1]
    chosen = [
        tuned(layer, graph, x, limit_bytes=limit, num_runs=1) for limit in (needed_bytes[0] * 2 // 3, sum(needed_bytes) // 2)
    ]
    assert [found.profile.advice.num_chunks > 1 for found in chosen] == [True, False]
    assert chosen[1].profile.advice.fuse
    assert "but not in this way" in chosen[1].profile.advice.reasons[0]
    for found in chosen:
        torch.testing.assert_close(found.run(x), whole(layer, graph, x))


def test_sums_come_first_where_features_are_fewer_than_what_they_become() -> None:
    graph = random_graph(64, 600)
    for features, hidden in ((4, 32), (32, 4)):
        layer, x = Gcn(features, hidden), torch.randn(64, features)
        found = tuned(layer, graph, x, limit_bytes=2**30, num_runs=1)
        assert (found.profile.advice.order is Order.SUMS) == (features < hidden)
        assert f"{features} features before products, {hidden} numbers after" in found.profile.advice.reasons[1]
        torch.testing.assert_close(found.run(x), whole(layer, graph, x))


def test_a_graph_that_does_not_fit_trains_in_chunks() -> None:
    graph, layer = rmat(9, 20_000), GatedGcn(_FEATURES, 16)
    x = torch.randn(graph.num_vertices, _FEATURES)
    limit_bytes = 2_000_000
    with pytest.raises(MemoryError, match="there is room for 2,000,000"), TensorCounter(limit_bytes):
        whole(layer, graph, x).sum().backward()
    num_chunks = num_chunks_for(graph, (32, 16, _FEATURES), limit_bytes)
    counter = TensorCounter(limit_bytes)
    streamed(layer, x, Streaming(Grid(graph, num_chunks), counter)).sum().backward()
    assert num_chunks > 1
    assert 0.1 * limit_bytes < counter.peak_bytes <= limit_bytes
    with pytest.raises(ValueError, match="fits into 10 bytes"):
        num_chunks_for(grid_graph(3), (32, 16, _FEATURES), 10)


def test_fewer_bytes_move_where_neighbours_are_together_and_only_what_is_read_is_sent() -> None:
    graph, layer = grid_graph(32), Gcn(_FEATURES, 5)
    moved: dict[tuple[str, float], int] = {}
    for order in ("metis", "random"):
        ordered, old = graph.reordered(order)
        assert sorted(old.tolist()) == list(range(graph.num_vertices))
        for selective in (0.0, 1.0):
            streaming = Streaming(Grid(ordered, 8), selective=selective)
            streamed(layer, torch.randn(graph.num_vertices, _FEATURES), streaming)
            moved[order, selective] = streaming.moved_bytes
    assert moved["metis", 1.0] < moved["metis", 0.0] < moved["random", 0.0]
    assert moved["metis", 1.0] < moved["random", 1.0]


def test_a_profile_says_which_stage_takes_longest_and_what_to_do() -> None:
    graph = random_graph(256, 8_000)
    found = profile(Gcn(64, 64), graph, torch.randn(256, 64), num_runs=1)
    assert [stage.name for stage in found.stages] == ["vertices", "scatter", "edges", "gather"]
    vertices, scatter, edges, _ = found.stages
    assert vertices.flops == 2 * 256 * 64 * 64
    assert scatter.flops == edges.flops == scatter.intensity == 0.0
    assert found.dominant == max(found.stages, key=lambda stage: stage.time_s).name
    assert found.advice.fuse == (found.fused_ratio is not None and found.fused_ratio > 1.0)
    assert found.advice.num_chunks == 1
    assert profile(Gat(8, 8), graph, torch.randn(256, 8), limit_bytes=100_000, num_runs=1).advice.num_chunks > 1


def test_the_table_says_equal_where_chunks_compute_the_same() -> None:
    assert [row.relation for row in ngra.equality()] == [Relation.AGREES] * 4
