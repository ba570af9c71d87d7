"""Captures a module as one graph, by AOTAutograd: its training step, with forward, loss and backward together, or its answers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dyorc.errors import ProgramCaptureError
from dyorc.offline.program.batch import batch_dims_of
from dyorc.offline.program.decompositions import ByFormula, decompositions
from dyorc.offline.program.graph import TensorProgram
from dyorc.offline.program.layers import layered
from dyorc.offline.program.reading import Reader
from dyorc.offline.program.refusals import Watch, refused
from dyorc.offline.program.simplify import simplified


def capture(module: nn.Module, inputs: Sequence[torch.Tensor], *, name: str = "") -> TensorProgram:
    """Captures the training step of a module whose call returns its loss.

    Nothing is computed: the module's parameters may lie on the `meta` device. Nodes of layers that it repeats have their number.

    Args:
        module: Called with the inputs, it returns the loss, a scalar.
        inputs: Examples; their shapes and types become the program's.
        name: For people; the class of the module if empty.

    Raises:
        ProgramCaptureError: torch cannot export the module, its result is not a scalar, or it draws random numbers.
    """
    name = name or type(module).__name__
    graph, signature = _exported(name, module, inputs, _OneLoss, trace_joint=True, output_loss_index=0)
    return layered(simplified(Reader(name, graph, signature).training_step()))


def capture_inference(module: nn.Module, inputs: Sequence[torch.Tensor], *, name: str = "") -> TensorProgram:
    """Captures what a module answers to a batch; computes nothing either.

    It is captured twice, the second time for one sample more: what differs is what grows with the batch.

    Args:
        module: Called with the inputs, it returns a tensor, or a tuple of several; it is taken as if `eval` had been called.
        inputs: Examples, each with the samples along its first dimension.
        name: For people; the class of the module if empty.

    Raises:
        ProgramCaptureError: torch cannot export the module, it returns something else, draws random numbers, changes its buffers,
            or does other operations for other numbers of samples.
    """
    name = name or type(module).__name__
    num_samples = {tuple(tensor.shape[:1]) for tensor in inputs}
    if len(num_samples) != 1 or () in num_samples or (0,) in num_samples:
        raise ProgramCaptureError(
            f"{name}: every example input must have the samples along its first dimension; the shapes are "
            f"{[list(tensor.shape) for tensor in inputs]}"
        )
    found = _inference(name, module, inputs)
    more = _inference(name, module, [tensor.new_empty((len(tensor) + 1, *tensor.shape[1:])) for tensor in inputs])
    return replace(found, batch_dims=batch_dims_of(found, more, len(inputs[0])))


def recapture_inference(module: nn.Module, inputs: Sequence[torch.Tensor], *, name: str = "") -> TensorProgram:
    """Captures what a module answers once only, to compare its digest: what grows with the batch is not found out."""
    return _inference(name or type(module).__name__, module, inputs)


def _inference(name: str, module: nn.Module, inputs: Sequence[torch.Tensor]) -> TensorProgram:
    with torch.no_grad():
        graph, signature = _exported(name, module, inputs, _Answers, trace_joint=False)
    return simplified(Reader(name, graph, signature).inference())


def _exported(
    name: str,
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    wrap: Callable[[nn.Module], nn.Module],
    **options: Any,
) -> tuple[torch.fx.Graph, Any]:
    from torch._functorch.aot_autograd import aot_export_module  # takes a second to import
    from torch._subclasses import FakeTensorMode
    from torch.nn.attention import SDPBackend, sdpa_kernel

    try:
        # attention that has a mask becomes many operations by the formula of torch
        with FakeTensorMode(allow_non_fake_inputs=True), sdpa_kernel(SDPBackend.MATH), _exporting():
            weightless, examples = _faked(module, inputs)
            found: Any = aot_export_module(wrap(weightless), examples, decompositions=decompositions(), **options)
    except Exception as error:
        raise refused(name, error) from error
    return found[0].graph, found[1]


def _faked(module: nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Returns a copy of the module and the inputs with fake tensors of the CPU; for whoever has entered a fake mode.

    Torch would compute the whole step with real ones. On `meta`, it has no gradient of some operations.
    """

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype)

    known: dict[int, Any] = {id(p): nn.Parameter(fake(p), requires_grad=p.requires_grad) for p in module.parameters()}
    known |= {id(buffer): fake(buffer) for buffer in module.buffers()}
    return deepcopy(module, known), tuple(fake(tensor) for tensor in inputs)


class _OneLoss(nn.Module):
    """What AOTAutograd wants: a module that returns a tuple whose first element is the loss."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor]:
        with ByFormula(), Watch(inputs):
            loss = self.module(*inputs)
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise TypeError(f"the module must return its loss, a scalar tensor, and returned {found}")
        return (loss,)


class _Answers(nn.Module):
    """What AOTAutograd wants: a module that returns a tuple of tensors."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.eval()

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with ByFormula(), Watch(inputs):
            found = self.module(*inputs)
        if isinstance(found, torch.Tensor):
            return (found,)
        if not isinstance(found, tuple | list) or len(found) < 2 or not all(isinstance(t, torch.Tensor) for t in found):
            raise TypeError(f"the module must return a tensor, or a tuple of several, and returned {type(found).__name__}")
        return tuple(found)


@contextmanager
def _exporting() -> Iterator[None]:
    """Says to libraries that ask `torch.compiler` that a graph is captured: they take no branch then that depends on data."""
    from torch import compiler

    flags = ("_is_compiling_flag", "_is_exporting_flag")  # what torch.export sets
    before = {flag: getattr(compiler, flag) for flag in flags if hasattr(compiler, flag)}
    try:
        for flag in before:
            setattr(compiler, flag, True)
        yield
    finally:
        for flag, value in before.items():
            setattr(compiler, flag, value)
