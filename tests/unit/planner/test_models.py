"""Models of the papers' sizes have the papers' numbers of parameters, and are captured without weights."""

import pytest

from benchmarks.papers.models.published import Model, hap_bert, hap_bert_moe, hap_vgg19, hap_vit, hidup_bert, hidup_vit
from dyorc.planner.program import axes_of, capture, strategies_of
from tests.unit.planner.examples import EXAMPLES, example


@pytest.mark.parametrize(
    ("model", "millions"),
    [
        (hap_vgg19(), 133 * 2**20 / 1e6),
        (hap_vit(), 54 * 2**20 / 1e6),
        (hap_bert(), 102.8 * 2**20 / 1e6),
        (hap_bert_moe(8), (84.8 + 36 * 8) * 2**20 / 1e6),
        (hap_bert_moe(64), (84.8 + 36 * 64) * 2**20 / 1e6),
        (hidup_bert(16), 89 + 19 * 16),
        (hidup_vit(16), 38 + 38 * 16),
    ],
    ids=["vgg19", "vit", "bert", "moe-8", "moe-64", "hidup-bert", "hidup-vit"],
)
def test_the_number_of_parameters_is_the_published_one(model: Model, millions: float) -> None:
    module, _ = model
    assert sum(parameter.numel() for parameter in module.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


def test_a_model_of_a_papers_size_is_captured_without_weights() -> None:
    module, inputs = hap_bert_moe(16, layers=2)
    program = capture(module, inputs)
    axes = axes_of(program)
    experts = program.gradients["layers.1.feed_forward.up"]
    assert program.values[experts].shape == (32, 768, 3072)
    batch, expert = axes.outermost[program.inputs[0]][0], axes.outermost[experts][0]
    products = [node for node in program.nodes if node.op in ("aten.mm.default", "aten.bmm.default")]
    assert len(products) > 40
    by_batch = [node for node in products if any(s.axis == batch for s in strategies_of(program, node, axes))]
    by_expert = [node for node in products if any(s.axis == expert for s in strategies_of(program, node, axes))]
    assert len(by_batch) == len(products)
    assert len(by_expert) >= 9  # three of each of the experts' products, and those that send and fetch tokens


def test_only_constants_must_stay_whole() -> None:
    whole: set[str] = set()
    for name in EXAMPLES:
        program = example(name).program
        axes = axes_of(program)
        whole |= {
            node.op
            for node in program.nodes
            if len(strategies_of(program, node, axes)) == 1 and any(program.values[o].shape for o in node.outputs if o)
        }
    assert whole == {"aten.arange.start_step"}
