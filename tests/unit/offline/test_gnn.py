"""Graph networks: chunk by chunk they compute what they compute on a whole graph, in the memory of a chunk."""

from collections.abc import Callable, Iterator

import pytest
import torch

from dyorc.offline.memory import TensorCounter
from dyorc.offline.models.gnn import (
    Gat,
    GatedGcn,
    Gcn,
    GgNn,
    Graph,
    Grid,
    SagaLayer,
    Sage,
    Streaming,
    fused,
    grid_graph,
    num_chunks_for,
    profile,
    random_graph,
    rmat,
    streamed,
    unhoisted,
    whole,
)
from dyorc.offline.reproduce import ngra
from dyorc.offline.reproduce.table import Relation

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


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


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
    if layer.is_linear:
        assert_equal(results(layer, lambda x: fused(layer, graph, x), graph), expected)
    else:
        with pytest.raises(ValueError, match="computes something at edges"):
            fused(layer, graph, torch.zeros(40, _FEATURES))


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
    assert [row.relation for row in ngra.equality()] == [Relation.EQUAL] * 4
