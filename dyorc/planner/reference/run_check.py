"""Judges a run of a plan on ranks: compares each result with what PyTorch computes on one device."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from dyorc.errors import ProgramCaptureError
from dyorc.planner.program.evaluate import evaluate, sources_of
from dyorc.planner.program.example import Example
from dyorc.planner.program.flat_module import copy_module
from dyorc.planner.program.graph import TensorProgram, ValueKind
from dyorc.planner.program.randomness.philox import STEP
from dyorc.planner.reference.module_step import Step, answers_of, label_results, mean_of, training_step_of
from dyorc.planner.reference.samples import example_with_elements, with_elements
from dyorc.planner.reference.tolerance import Judgement, coarsest_types, judge
from dyorc.planner.reference.torch_optimizers import Optimizer, first_adama_averages_of, first_adama_update_of, first_update_of


def judge_run(
    program: TensorProgram,
    results: Mapping[str, torch.Tensor],
    module: nn.Module,
    example: Example,
    sources: Mapping[str, torch.Tensor],
    optimizer: tuple[Optimizer, int] | None = None,
) -> Judgement:
    """Compares what ranks computed with what the module computes on one device, within the tolerance of each type.

    Gradients are held against the module's; the step of an optimizer against torch.optim's on the gradients that the ranks
    computed, since Adam makes a whole step of a gradient that is only rounding.

    Args:
        program: What was run.
        results: By the names of the program's values.
        module: Stays as it was.
        example: What both read; each microbatch the same.
        sources: What the ranks began with.
        optimizer: Whose step the program holds, and over how many microbatches.
    """
    if program.outputs:
        answers = answers_of(copy_module(module), example).results(program)
        return judge(answers, label_results(program, results), label_results(program, coarsest_types(program)))
    name, num_parts = optimizer or (None, 1)
    module = copy_module(module)
    steps = [training_step_of(module, example, part) for part in range(num_parts)]
    expected = mean_of(steps).results(program, has_gradients=name != "adama")
    kinds = (ValueKind.PARAMETER, ValueKind.STATE)
    updates = {source: value for source, value in program.updates.items() if program.values[source].kind in kinds}
    changed = {source: results[value] for source, value in updates.items()}
    expected |= _updates(program, name, steps, changed, results, sources)
    types = coarsest_types(program)
    return judge(
        expected,
        label_results(program, results) | {_label(source): value for source, value in changed.items()},
        label_results(program, types) | {_label(source): types[value] for source, value in updates.items()},
    )


def compare_update(
    program: TensorProgram,
    module: nn.Module,
    example: Example,
    optimizer: tuple[Optimizer, int],
) -> None:
    """Runs a program with an optimizer's step on one device, and compares it with the module and torch.optim.

    Raises:
        ProgramCaptureError: They compute something else.
    """
    module, example = with_elements(module), example_with_elements(example)
    sources = sources_of(program, module, example.tensors)
    judgement = judge_run(program, evaluate(program, sources), module, example, sources, optimizer)
    if not judgement.is_equal:
        raise ProgramCaptureError(f"{program.name}: the step of {optimizer[0]} is not that of torch: {judgement}")


def _label(source: str) -> str:
    return f"{source} after the step"


def _updates(
    program: TensorProgram,
    optimizer: Optimizer | None,
    steps: Sequence[Step],
    changed: Mapping[str, torch.Tensor],
    results: Mapping[str, torch.Tensor],
    sources: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    match optimizer:
        case None:
            after: dict[str, torch.Tensor] = {}
        case "adama":
            after = first_adama_averages_of([step.gradients for step in steps])
            for name in [name for name in changed if f"{name}.mean" in changed]:
                after[name] = first_adama_update_of(sources[name], changed[f"{name}.mean"], changed[f"{name}.square"])
        case _:
            gradients = {name: results[value] for name, value in program.gradients.items()}
            after = first_update_of(optimizer, sources, gradients)
    if "optimizer.step" in changed:
        after["optimizer.step"] = sources["optimizer.step"] + 1
    if STEP in changed:
        after[STEP] = sources[STEP] + len(steps)
    return {_label(name): value for name, value in after.items()}
