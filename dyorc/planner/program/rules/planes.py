"""Operations on planes: pooling and convolutions."""

from collections.abc import Mapping

from dyorc.planner.program.plane_operations import PLANES, num_space_of
from dyorc.planner.program.rules.rule import BoundNode, Letters, Maker, Rule, Shape


def _is_plain(node: BoundNode) -> bool:
    return node.named["transposed"] is False and node.named["groups"] == 1


def _convolution(node: BoundNode) -> Rule | None:
    space = (None,) * (len(node.shape("weight")) - 2)
    if len(node.shape("input")) != len(node.shape("weight")):
        return None  # one sample, without a dimension for it
    if not _is_plain(node):
        return node.rule({"input": ("n", None, *space)}, ("n", None, *space))
    has_bias = node.has("bias")
    inner = None if has_bias else "i"  # with a bias, each partial sum would add it
    return node.rule(
        {"input": ("n", inner, *space), "weight": ("o", inner, *space), "bias": ("o",)},
        ("n", "o", *space),
        linear=() if has_bias else (("input",), ("weight",)),
    )


def _convolution_backward(node: BoundNode) -> Rule | None:
    space = (None,) * (len(node.shape("weight")) - 2)
    if len(node.shape("input")) != len(node.shape("weight")):
        return None
    o, i = ("o", "i") if _is_plain(node) else (None, None)
    return node.rule(
        {"grad_output": ("n", o, *space), "input": ("n", i, *space), "weight": (o, i, *space)},
        ("n", i, *space),
        (o, i, *space),
        (o,),
        linear=(("grad_output",),),
        untouched=(("i", 2),),  # the bias's gradient is a sum of the output's
    )


def _planes(node: BoundNode) -> Rule:
    """Works on each plane of each sample by itself: pooling, and its gradients; `[channels, ...]` is one sample."""
    num_space = num_space_of(node.name)

    def letters(shape: Shape) -> Letters:
        return (*("n", "c")[num_space + 2 - len(shape) :], *(None,) * num_space)

    return Rule(inputs=tuple(map(letters, node.inputs)), outputs=tuple(map(letters, node.outputs)))


RULES: Mapping[str, Maker] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(PLANES, _planes),
}
