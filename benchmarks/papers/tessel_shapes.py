"""The placements that the paper evaluates: which blocks of a microbatch run where.

A forward block takes 1 unit of time and keeps 1 unit of memory, a backward block takes 3 and gives it back; what all devices
compute together takes 1 and keeps nothing, except for K's cross block, which keeps 1.

Source: Tessel (HPCA'24), figure 8 and section 6; the settings of its published simulator.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dyorc.planner.planners.modulo.modulo_blocks import ModuloBlock, ModuloProblem


def v_shape(num_devices: int = 4, *, is_training: bool = True) -> ModuloProblem:
    """One stage for each device: forward down, backward up."""
    return _problem(_line(_stages("", range(num_devices))), is_training)


def x_shape(num_devices: int = 4, *, is_training: bool = True) -> ModuloProblem:
    """Two pipelines in opposite directions, each of one microbatch."""
    down, up = range(num_devices), range(num_devices - 1, -1, -1)
    return _problem([*_line(_stages("down", down)), *_line(_stages("up", up))], is_training)


def m_shape(num_devices: int = 4, *, is_training: bool = True) -> ModuloProblem:
    """An embedding on all devices before one stage for each device."""
    return _problem(_line([_shared("embedding", num_devices), *_stages("", range(num_devices))]), is_training)


def nn_shape(num_devices: int = 4, *, is_training: bool = True) -> ModuloProblem:
    """An encoder and a decoder, each with an embedding on all devices before it."""
    stages, half = _stages("", range(num_devices)), num_devices // 2
    embeddings = [_shared("encoder's embedding", num_devices), _shared("decoder's embedding", num_devices)]
    return _problem(_line([embeddings[0], *stages[:half], embeddings[1], *stages[half:]]), is_training)


def k_shape(num_devices: int = 4, *, is_training: bool = True) -> ModuloProblem:
    """Two branches, each on half of the devices, that meet in a block on all."""
    half = num_devices // 2
    first, second = _line(_stages("one", range(half))), _line(_stages("other", range(half, num_devices)))
    cross = replace(_shared("cross", num_devices), memory=1, after=(first[-1].name, second[-1].name))
    return _problem([*first, *second, cross], is_training)


SHAPES: Mapping[str, Callable[..., ModuloProblem]] = {"V": v_shape, "X": x_shape, "K": k_shape, "M": m_shape, "NN": nn_shape}
"""By the paper's names. Each takes the number of devices and whether it trains."""


def _stages(branch: str, devices: Iterable[int]) -> list[ModuloBlock]:
    blocks = [(f"{branch} {stage}".strip(), device) for stage, device in enumerate(devices)]
    return [ModuloBlock(name=f"f {name}", span=1, memory=1, resources=(_device(device),)) for name, device in blocks]


def _shared(name: str, num_devices: int) -> ModuloBlock:
    return ModuloBlock(name=f"f {name}", span=1, resources=tuple(map(_device, range(num_devices))))


def _device(index: int) -> str:
    return f"device {index}"


def _line(blocks: Sequence[ModuloBlock]) -> list[ModuloBlock]:
    """Chains the blocks."""
    return [blocks[0], *(replace(block, after=(before.name,)) for before, block in itertools.pairwise(blocks))]


def _problem(forward: Sequence[ModuloBlock], is_training: bool) -> ModuloProblem:
    if not is_training:
        return ModuloProblem(tuple(replace(block, memory=0) for block in forward))
    followers: dict[str, list[str]] = {block.name: [] for block in forward}
    for block in forward:
        for name in block.after:
            followers[name].append(block.name)
    backward: list[ModuloBlock] = []
    for block in reversed(forward):
        after = tuple(_back(name) for name in followers[block.name]) or (block.name,)
        is_stage = block.memory and len(block.resources) == 1
        span = 3 if is_stage else 1
        backward.append(
            ModuloBlock(name=_back(block.name), span=span, memory=-block.memory, resources=block.resources, after=after)
        )
    return ModuloProblem((*forward, *backward))


def _back(name: str) -> str:
    return f"b{name[1:]}"
