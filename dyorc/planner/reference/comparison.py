"""Compares a captured program with its module. A proof of the program holds for the module as far as this comparison shows.

Both compute a whole step in float64, on the example and on other weights and inputs. Where a module cannot run in float64, or
depends on its type, both compute in their own types, and rounding is allowed for.

A model for inference must treat each sample by itself, and batches of any size alike: servers fill batches with samples of other
requests.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import nn

from dyorc.errors import ProgramCaptureError, text_of
from dyorc.planner.plan import ModuleCheck
from dyorc.planner.program.batch import with_samples
from dyorc.planner.program.evaluate import evaluate, sources_of
from dyorc.planner.program.example import Example
from dyorc.planner.program.flat_module import copy_module
from dyorc.planner.program.graph import TensorProgram, ValueKind
from dyorc.planner.reference.first_difference import first_difference
from dyorc.planner.reference.float64 import InFloat64, module_in_float64, program_in_float64, widen
from dyorc.planner.reference.module_step import Step, answers_of, label_results, training_step_of
from dyorc.planner.reference.repeatability import check_repeatable, recapture
from dyorc.planner.reference.samples import example_with_elements, other_example, randomize, with_elements
from dyorc.planner.reference.tolerance import Judgement, coarsest_types, judge

NUM_SEEDS = 3
"""How often both run: on the example with the module's own weights, and on others."""


def compare_with_module(program: TensorProgram, module: nn.Module, example: Example) -> ModuleCheck:
    """Runs a program and its module on one device, and compares loss or answers, every gradient and every buffer.

    It is captured once more, after it has run: what differs from call to call is refused. The module stays as it was.

    Args:
        program: Captured from the module, without the step of an optimizer.
        module: As it was captured.
        example: With which it was captured.

    Raises:
        ProgramCaptureError: They compute something else; names the results, and the first operation whose result differs.
            Or there is too little memory for two steps in float64.
    """
    with torch.random.fork_rng(devices=[]):
        own = _Pair(program, with_elements(module), example_with_elements(example))
        check_memory(program)
        try:
            check = _compared(own)
        except ProgramCaptureError:
            check_repeatable(recapture(program, own.module, own.example), own.module, own.example)  # this may be the reason
            raise
        check_repeatable(program, own.module, own.example)
        if program.outputs:
            check_samples_apart(program, own.module, own.example)
        return check


def _compared(own: "_Pair") -> ModuleCheck:
    in_float64 = own.in_float64()
    try:
        return in_float64.compared()
    except _CannotRun:
        return own.compared()
    except ProgramCaptureError:
        # what depends on the type, such as its smallest number, is another constant in float64
        own.in_float64(recapture(own.program, in_float64.module, in_float64.example)).compared()
        return own.compared()


class _CannotRun(Exception):
    """A module does not run in float64."""


@dataclass(frozen=True)
class _Pair:
    """A program and its module, both to run in types of their own, or both in float64."""

    program: TensorProgram
    module: nn.Module
    example: Example
    is_wide: bool = False

    def in_float64(self, program: TensorProgram | None = None) -> "_Pair":
        module = module_in_float64(self.module)
        program = program or program_in_float64(self.program)
        wide = self.example.with_tensors(tuple(map(widen, self.example.tensors)))
        return _Pair(program, module, wide, is_wide=True)

    def compared(self) -> ModuleCheck:
        """Runs both for each seed.

        Raises:
            ProgramCaptureError: They differ.
            _CannotRun: The module does not run in float64.
        """
        largest, num_results = 0.0, 0
        for seed in range(NUM_SEEDS):
            module, example = self._sample(seed)
            judgement = self._judgement(module, example)
            if not judgement.is_equal:
                raise self._error(judgement, seed)
            largest, num_results = max(largest, judgement.largest), judgement.num_results
        dtype = "float64" if self.is_wide else "own"
        return ModuleCheck(num_seeds=NUM_SEEDS, dtype=dtype, largest_difference=largest, num_results=num_results)

    def _sample(self, seed: int) -> tuple[nn.Module, Example]:
        module = copy_module(self.module)
        if seed == 0:
            return module, self.example
        generator = torch.Generator().manual_seed(seed)
        randomize(module, generator)
        return module, other_example(self.example, generator, lambda other: self._accepts(module, other))

    def _accepts(self, module: nn.Module, example: Example) -> bool:
        try:
            self._run(copy_module(module), example)
        except (Exception, SystemExit):
            return False
        return True

    def _run(self, module: nn.Module, example: Example) -> Step:
        copy = example.with_tensors([tensor.clone() for tensor in example.tensors])
        with InFloat64() if self.is_wide else nullcontext():
            return answers_of(module, copy) if self.program.outputs else training_step_of(module, copy)

    def _judgement(self, module: nn.Module, example: Example) -> Judgement:
        sources = self._sources(module, example)
        try:
            step = self._run(copy_module(module), example)
        except (Exception, SystemExit) as error:
            if self.is_wide:
                raise _CannotRun from error
            raise ProgramCaptureError(f"{self.program.name} cannot be run: {type(error).__name__}: {text_of(error)}") from error
        try:
            results = label_results(self.program, evaluate(self.program, sources))
        except Exception as error:
            raise ProgramCaptureError(f"{self.program.name}: an operation cannot be computed alone: {text_of(error)}") from error
        return judge(step.results(self.program), results, label_results(self.program, coarsest_types(self.program)))

    def _sources(self, module: nn.Module, example: Example) -> dict[str, torch.Tensor]:
        sources = sources_of(self.program, module, example.tensors)
        return {name: widen(tensor) if self.is_wide else tensor.clone() for name, tensor in sources.items()}

    def _error(self, judgement: Judgement, seed: int) -> ProgramCaptureError:
        module, example = self._sample(seed)
        sources = self._sources(module, example)
        operation = first_difference(self.program, sources, lambda: self._run(module, example))
        where = "" if operation is None else f"\nthe first operation whose result is not in the program: {operation}"
        return ProgramCaptureError(
            f"{self.program.name}: the captured program computes something else than the module; {judgement}{where}"
        )


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
        judgement = judge(_answers(program, module, fewer), label_results(smaller, results))
        if not judgement.is_equal:
            raise ProgramCaptureError(f"{program.name} is another program for batches of {size} samples; {judgement}")


def _answers(program: TensorProgram, module: nn.Module, example: Example) -> dict[str, torch.Tensor]:
    return answers_of(copy_module(module), example).results(program)


def _with_other_neighbours(tensor: torch.Tensor, kept: int) -> torch.Tensor:
    """The samples in another place, all but one; where they are all the same, other ones."""
    other = tensor.roll(1, 0)
    if tensor.is_floating_point() and torch.equal(other, tensor):
        other = tensor + 1
    other[kept] = tensor[kept]
    return other


_COPIES_OF_WEIGHTS = 4
"""Weights and gradients, of the module and of the program."""
_BYTES = 8


def check_memory(program: TensorProgram) -> None:
    """Refuses what would need more memory than is free.

    Raises:
        ProgramCaptureError: It would need more.
    """
    weights = sum(prod(value.shape) for value in program.values.values() if value.kind is not ValueKind.ACTIVATION)
    activations = sum(prod(value.shape) for value in program.values.values() if value.kind is ValueKind.ACTIVATION)
    needed, free = _BYTES * (_COPIES_OF_WEIGHTS * weights + activations), _free_bytes()
    if free is not None and needed > free:
        raise ProgramCaptureError(
            f"{program.name} needs about {needed / 1e9:,.1f} GB to run next to its captured program on one device, and "
            f"{free / 1e9:,.1f} GB are free: compare a smaller one of its kind, and plan this one without (--no-compare)"
        )


def _free_bytes() -> int | None:
    """What the machine has free; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
