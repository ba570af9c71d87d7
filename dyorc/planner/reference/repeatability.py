"""Finds modules that compute something else each time: by Python's random numbers, counters, or what a call leaves behind."""

import random
import warnings

import numpy as np
import torch
from torch import nn

from dyorc.errors import ProgramCaptureError
from dyorc.planner.program.capture import capture, recapture_inference
from dyorc.planner.program.example import Example
from dyorc.planner.program.exporting import preserve_random_states
from dyorc.planner.program.flat_module import copy_module
from dyorc.planner.program.graph import Node, TensorProgram

_OTHER_SEED = 0xD1FF


def recapture(program: TensorProgram, module: nn.Module, example: Example) -> TensorProgram:
    """Captures a module again as a program of the same kind."""
    args, keywords = example.arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first capture has said what it had to say
        return (recapture_inference if program.outputs else capture)(module, args, keywords, name=program.name)


def check_repeatable(program: TensorProgram, module: nn.Module, example: Example) -> None:
    """Runs a copy of a module once, captures it again, and compares the programs.

    Raises:
        ProgramCaptureError: They are not the same; names the first operation that is another one.
    """
    copy = copy_module(module)
    try:
        example.call(copy)
    except (Exception, SystemExit):
        return  # the comparison of results says why it cannot run
    with preserve_random_states():
        random.seed(_OTHER_SEED)  # a capture gives generators their states back, so it would draw the same again
        np.random.seed(_OTHER_SEED)  # the global one is meant
        again = recapture(program, copy, example)
    if again.digest == program.digest and _have_equal_constants(program, again):
        return
    differing = next(((a, b) for a, b in zip(program.nodes, again.nodes, strict=False) if _what(a) != _what(b)), None)
    first = ", with other constants"
    if differing is not None:
        first = f": {differing[0].op} reads {_arguments(differing[0])}, and then {_arguments(differing[1])}"
    raise ProgramCaptureError(
        f"{program.name} is captured as another program after it has run once{first}. A plan repeats one "
        "step: what a module counts or draws must be tensors (buffers, or torch's random numbers)"
    )


def _what(node: Node) -> tuple[object, ...]:
    return node.op, repr(node.arguments), repr(node.keywords), node.outputs


def _arguments(node: Node) -> str:
    return ", ".join(map(str, node.arguments))


def _have_equal_constants(program: TensorProgram, again: TensorProgram) -> bool:
    return all(torch.equal(tensor, again.constants[name]) for name, tensor in program.constants.items())
