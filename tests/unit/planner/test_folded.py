"""A plan of hundreds of operations is folded into few blocks, and what goes between them is named in its layouts."""

from dyorc.planner.cluster import even_cluster
from dyorc.planner.models import gpt
from dyorc.planner.plan.folded import Folded, fold
from dyorc.planner.planners.baselines.data_parallel import dp_even
from dyorc.planner.planners.baselines.megatron import megatron
from dyorc.planner.program import capture
from tests.unit.planner.examples import example


def _between(graph: Folded, source: str, target: str, *, is_backward: bool) -> list[tuple[str, ...]]:
    names = [block.name for block in graph.blocks]
    ends = (names.index(source), is_backward), (names.index(target), is_backward)
    return [edge.shown.tensors for edge in graph.edges if (edge.source, edge.target) == ends]


def test_equal_layers_are_one_block_unless_they_run_elsewhere() -> None:
    program = capture(*gpt(layers=4))
    graph = fold(plan := megatron(program, even_cluster(2)), program)
    assert [block.name for block in graph.blocks] == ["tokens", "positions", "layers 0 to 3", "norm", "head"]
    layers = graph.blocks[2]
    assert layers.forward.ranks == (0, 1)
    assert layers.forward.sent.keys() == {"all_reduce"}
    assert [shown.name for shown in layers.parameters][:2] == [
        "layers.0.feed_forward.down.weight",
        "layers.0.feed_forward.up.weight",
    ]
    assert [str(plan.tensors[shown.tensors[0]].layout[0]) for shown in layers.parameters][:2] == ["S1(64*2)", "S0(64*2)"]
    assert sum(block.forward.num_operations + block.backward.num_operations for block in graph.blocks) == len(program.nodes)

    staged = fold(megatron(program, even_cluster(2), tp=1, pp=2, microbatches=2), program)
    assert [block.name for block in staged.blocks[2:4]] == ["layers 0 to 1", "layers 2 to 3"]
    ((made, read),) = _between(staged, "layers 0 to 1", "layers 2 to 3", is_backward=False)  # it goes to another mesh
    assert "@stage0:" in made
    assert "@stage1:" in read
    assert len(_between(staged, "layers 2 to 3", "layers 0 to 1", is_backward=True)) == 1


def test_a_model_without_layers_is_folded_into_neighbouring_modules() -> None:
    program = example("vgg19").program
    graph = fold(dp_even(program, even_cluster(2)), program)
    assert len(graph.blocks) == 6
    assert {edge.source for edge in graph.edges} >= {(index, False) for index in range(6)}
