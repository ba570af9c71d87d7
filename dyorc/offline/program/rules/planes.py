"""Operations on planes: pooling and convolutions."""

from collections.abc import Mapping

from dyorc.offline.program.rules.rule import BoundNode, Letters, Maker, Rule, Shape


def _is_plain(node: BoundNode) -> bool:
    return node.named["transposed"] is False and node.named["groups"] == 1


def _convolution(node: BoundNode) -> Rule:
    space = (None,) * (len(node.shape("weight")) - 2)
    if not _is_plain(node):
        return node.rule({"input": ("n", None, *space)}, ("n", None, *space))
    has_bias = node.has("bias")
    inner = None if has_bias else "i"  # with a bias, each partial sum would add it
    return node.rule(
        {"input": ("n", inner, *space), "weight": ("o", inner, *space), "bias": ("o",)},
        ("n", "o", *space),
        linear=() if has_bias else (("input",), ("weight",)),
    )


def _convolution_backward(node: BoundNode) -> Rule:
    space = (None,) * (len(node.shape("weight")) - 2)
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
    """Works on each plane of each sample by itself: pooling, and its gradients."""

    def letters(shape: Shape) -> Letters:
        return ("n", "c", *(None,) * (len(shape) - 2)) if len(shape) > 2 else (None,) * len(shape)

    return Rule(inputs=tuple(map(letters, node.inputs)), outputs=tuple(map(letters, node.outputs)))


RULES: Mapping[str, Maker] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "max_pool2d_with_indices": _planes,
    "max_pool2d_with_indices_backward": _planes,
    "avg_pool2d": _planes,
    "avg_pool2d_backward": _planes,
    "_adaptive_avg_pool2d": _planes,
    "_adaptive_avg_pool2d_backward": _planes,
}
