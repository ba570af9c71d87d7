"""Whether a model that answers treats each sample by itself, and batches of any size alike: servers fill them with strangers."""

import torch
from torch import nn

from dyorc.errors import ProgramCaptureError
from dyorc.planner.program.batch import with_samples
from dyorc.planner.program.evaluate import evaluate
from dyorc.planner.program.example import Example
from dyorc.planner.program.flat_module import copied
from dyorc.planner.program.graph import TensorProgram
from dyorc.planner.program.sources import sources_of
from dyorc.planner.reference.module_step import answers_of, labelled
from dyorc.planner.reference.tolerance import judge

_MAX_SIZES = 8
"""How many sizes of batches are tried, from one sample on."""


def check_samples_apart(program: TensorProgram, module: nn.Module, example: Example) -> None:
    """Runs a model on batches with other neighbours, and on smaller ones.

    Args:
        program: Of the model.
        module: The model; stays as it was.
        example: Its largest batch.

    Raises:
        ProgramCaptureError: An answer depends on another sample, or the program for fewer samples is not the model.
    """
    num_samples = len(example.tensors[0])
    answers = _answers(program, module, example)
    for kept in {0, num_samples - 1}:
        others = [_with_other_neighbours(tensor, kept) for tensor in example.tensors]
        changed = _answers(program, module, example.with_tensors(others))
        judgement = judge({n: t[kept] for n, t in answers.items()}, {n: t[kept] for n, t in changed.items()})
        if not judgement.is_equal:
            raise ProgramCaptureError(
                f"{program.name}: what is answered to sample {kept} of a batch depends on the other samples; {judgement}"
            )
    for size in range(1, min(num_samples, _MAX_SIZES + 1)):
        fewer = example.with_tensors([tensor[:size] for tensor in example.tensors])
        smaller = with_samples(program, size)
        results = evaluate(smaller, sources_of(smaller, module, fewer.tensors))
        judgement = judge(_answers(program, module, fewer), labelled(smaller, results))
        if not judgement.is_equal:
            raise ProgramCaptureError(f"{program.name} is another program for batches of {size} samples; {judgement}")


def _answers(program: TensorProgram, module: nn.Module, example: Example) -> dict[str, torch.Tensor]:
    return answers_of(copied(module), example).results(program)


def _with_other_neighbours(tensor: torch.Tensor, kept: int) -> torch.Tensor:
    """The samples in another place, all but one; where they are all the same, other ones."""
    other = tensor.roll(1, 0)
    if tensor.is_floating_point() and torch.equal(other, tensor):
        other = tensor + 1
    other[kept] = tensor[kept]
    return other
