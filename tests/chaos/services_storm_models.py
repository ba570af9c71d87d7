"""Models whose answers say which version and which process made them: source code for each version, to be deployed."""

from pathlib import Path

SINGLE, PARTS, ONCE = "single", "parts", "once"
KINDS = (SINGLE, PARTS, ONCE)
"""Of models: one answer; parts of a program that may be repeated; parts of one that may not."""

_HEADER = '''\
"""Version {version} of {model}."""

import asyncio
import os
from collections.abc import AsyncIterator

import numpy as np
from jaxtyping import Int

import dyorc

Number = Int[np.ndarray, ""]
Numbers = Int[np.ndarray, " batch"]
'''
_SINGLE = """

@dyorc.program(in_process=True, max_batch_size=16)
def {model}_program(x: Numbers) -> tuple[Numbers, Numbers]:
    return np.full(len(x), {version}), np.full(len(x), os.getpid())


@dyorc.workflow
async def {model}(x: Number) -> tuple[Number, Number]:
    return {model}_program(x)
"""
_PARTS = """

@dyorc.program(in_process=True, batched=False, max_ongoing=8, pure={is_pure})
async def {model}_program(num_parts: Number) -> AsyncIterator[Int[np.ndarray, "3"]]:
    for at in range(int(num_parts)):
        await asyncio.sleep(0.05)
        yield np.array([at, {version}, os.getpid()])


@dyorc.workflow
async def {model}(num_parts: Number) -> AsyncIterator[Int[np.ndarray, "3"]]:
    async for part in {model}_program(num_parts):
        yield part
"""


def kind_of(model: str) -> str:
    """Returns which of `KINDS` a model is."""
    return model.partition("_")[0]


def write_version(folder: Path, model: str, version: str) -> str:
    """Writes a version's source code, and returns its target."""
    source = _HEADER + (_SINGLE if kind_of(model) == SINGLE else _PARTS)
    path = folder / f"{model}_{version}.py"
    path.write_text(source.format(model=model, version=version, is_pure=kind_of(model) == PARTS))
    return f"{path}:{model}"
