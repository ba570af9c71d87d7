"""Layers are found and repeated: the program is that of a module captured with so many layers."""

import time

import pytest
import torch
from torch import nn

from dyorc.errors import PlanError
from dyorc.planner.models import bert_moe, gpt, llama, vgg19
from dyorc.planner.program import TensorProgram, capture, evaluate
from dyorc.planner.program.graph import rename_values
from dyorc.planner.program.layers import number_layers, repeat_layers


def _captured(builder: object, **sizes: object) -> tuple[nn.Module, tuple[torch.Tensor, ...], TensorProgram]:
    torch.manual_seed(0)
    module, inputs = builder(**sizes)  # type: ignore[operator]
    return module, inputs, capture(module.double(), inputs)


def _anonymous(program: TensorProgram) -> list[object]:
    """The program with numbers for the names of what it computes; parameters keep their names."""
    names = {name: name for name in program.sources}
    rows: list[object] = []
    for node in program.nodes:
        arguments = tuple(rename_values(argument, names) for argument in node.arguments)
        for output in node.outputs:
            names[output] = f"value {len(names)}"
        rows.append((node.op, arguments, node.keywords, tuple(names[o] for o in node.outputs), node.phase, node.layer))
    sources = {(v.name, v.shape, v.dtype, v.kind) for v in program.values.values() if v.name in program.sources}
    return [rows, [names[program.loss]], {p: names[g] for p, g in program.gradients.items()}, sources]


@pytest.mark.parametrize(
    ("builder", "few", "many"),
    [
        pytest.param(gpt, 2, 4, id="gpt"),
        pytest.param(llama, 2, 3, id="llama", marks=pytest.mark.slow),
        pytest.param(bert_moe, 4, 6, id="moe", marks=pytest.mark.slow),
    ],
)
def test_a_repeated_program_is_the_one_captured_with_so_many_layers(builder: object, few: int, many: int) -> None:
    size = {"hidden": 16, "batch": 2, "sequence": 8}
    _, _, short = _captured(builder, layers=few, **size)
    module, inputs, long = _captured(builder, layers=many, **size)
    each = 2 if builder is bert_moe else 1  # a layer of BERT-MoE that repeats is two: one with experts, one without
    many_layers = repeat_layers(short, many // each)
    assert _anonymous(many_layers) == _anonymous(number_layers(long))
    sources = {name: tensor.detach() for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    results = evaluate(many_layers, sources | dict(zip(many_layers.inputs, inputs, strict=True)))
    loss = module(*inputs)
    loss.backward()
    torch.testing.assert_close(results[many_layers.loss], loss.detach())
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(results[many_layers.gradients[name]], parameter.grad)


def test_a_llama_of_405b_parameters_is_written_from_two_layers() -> None:
    with torch.device("meta"):
        module, inputs = llama(
            layers=2, hidden=16384, heads=128, kv_heads=8, inner=53248, vocabulary=128256, sequence=8192, batch=1
        )
    program = capture(module, inputs)
    start_s = time.process_time()
    many_layers = repeat_layers(program, 126)
    assert time.process_time() - start_s < 60
    num_elements = sum(many_layers.values[name].num_bytes // 4 for name in many_layers.parameters)
    assert 405e9 < num_elements < 406.5e9
    assert {node.layer for node in many_layers.nodes} == {None, *range(126)}
    assert len(many_layers.gradients) == 126 * 9 + 3


def test_what_repeats_nothing_is_refused() -> None:
    module, inputs = vgg19(batch=1, convolutions=(1, 1, 1, 1, 1), width=1)
    program = capture(module, inputs)
    with pytest.raises(PlanError, match="does not repeat any layer"):
        repeat_layers(program, 4)


def test_fewer_layers_than_there_are_is_refused() -> None:
    _, _, program = _captured(gpt, layers=2, hidden=8, batch=2, sequence=4)
    with pytest.raises(PlanError, match="has 2 layers already, more than 1"):
        repeat_layers(program, 1)
