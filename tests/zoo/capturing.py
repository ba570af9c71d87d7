"""Captures a model's training step, and compares the program with the module."""

import re
import warnings
from dataclasses import dataclass

import torch

from dyorc.errors import CaptureWarning, DyOrcError
from dyorc.planner.program import TensorProgram, capture, evaluate, sources_of
from dyorc.planner.program.example import Example
from dyorc.planner.reference import compare_with_module
from tests.zoo.models.entry import Entry
from tests.zoo.reference import TOLERANCES, Results, largest_error, narrowest, of_program, reference
from tests.zoo.training import WithLoss, step_of


@dataclass(frozen=True, kw_only=True)
class Captured:
    """A captured model.

    Attributes:
        program: The program.
        sources: A tensor for each of its sources.
        expected: What torch computes; see `reference`.
    """

    program: TensorProgram
    sources: dict[str, torch.Tensor]
    expected: Results


@dataclass(frozen=True, kw_only=True)
class CaptureOutcome:
    """What came of a capture.

    Attributes:
        captured: The model, if it is.
        refused: Why it is not; empty if it is, or if it computes something else and nothing but the zoo has seen that.
        error: How far the program is from the module; see `largest_error`.
        where: The tensor that is furthest.
        is_broken: Whether torch itself cannot run the training step: that is a mistake of the zoo.
    """

    captured: Captured | None = None
    refused: str = ""
    error: float = 0.0
    where: str = ""
    is_broken: bool = False


def capture_entry(entry: Entry) -> CaptureOutcome:
    """Builds a model, runs it by torch, captures it, and runs the program."""
    try:
        module, inputs, expected = _step_and_reference(entry)
    except Exception as error:  # any library's
        return CaptureOutcome(refused=f"torch cannot run it: {type(error).__name__}: {_first_line(error)}", is_broken=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CaptureWarning)  # parameters that no gradient reaches: torch has none, either
            program = capture(module, inputs, name=entry.name)
    except DyOrcError as error:
        return CaptureOutcome(refused=_first_line(error))
    except Exception as error:
        return CaptureOutcome(refused=f"not a refusal: {type(error).__name__}: {_first_line(error)}")
    sources = sources_of(program, module, inputs)
    try:
        results = of_program(program, evaluate(program, sources), sources)
    except Exception as error:
        return CaptureOutcome(refused=f"the program does not run: {type(error).__name__}: {_first_line(error)}")
    error, where = largest_error(expected, results)
    captured = Captured(program=program, sources=sources, expected=expected)
    if error <= TOLERANCES[narrowest(program)]:
        return CaptureOutcome(captured=captured, error=error, where=where)
    try:
        compare_with_module(program, module, Example.of(inputs, None))
    except DyOrcError as refusal:  # no plan is made of it
        return CaptureOutcome(refused=_first_line(refusal), error=error, where=where)
    return CaptureOutcome(error=error, where=where)


def _step_and_reference(entry: Entry) -> tuple[WithLoss, tuple[torch.Tensor, ...], Results]:
    """In float64, unless torch can run the model in float32 alone."""
    try:
        return _checked(*step_of(entry))
    except Exception:
        return _checked(*step_of(entry, torch.float32))


def _checked(module: WithLoss, inputs: tuple[torch.Tensor, ...]) -> tuple[WithLoss, tuple[torch.Tensor, ...], Results]:
    expected = reference(module, inputs)
    _check_reference(expected)
    return module, inputs, expected


def _check_reference(expected: Results) -> None:
    """Refuses a step that says nothing: with numbers that are none, or with few gradients that are not zero."""
    if not all(bool(tensor.isfinite().all()) for tensors in expected.values() for tensor in tensors.values()):
        raise ValueError("some results are not finite")
    num_zero = sum(not bool(gradient.any()) for gradient in expected["gradients"].values())
    if 2 * num_zero >= len(expected["gradients"]):
        raise ValueError(f"{num_zero} of {len(expected['gradients'])} gradients are zero")


def _first_line(error: Exception) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"\S*/site-packages/", "", line)  # where libraries lie is this machine's own
