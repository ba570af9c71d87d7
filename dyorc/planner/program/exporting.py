"""Exports one call of a module with AOTAutograd, on tensors without elements, in modes that make the graph plannable."""

import random
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import treespec_dumps

from dyorc.errors import CaptureWarning, ProgramCaptureError
from dyorc.planner.program.capture_errors import Watch, capture_error_of
from dyorc.planner.program.decompositions import ByFormula, decompositions
from dyorc.planner.program.example import Example, tensors_in
from dyorc.planner.program.flat_module import FlatModule, Pick, strip_elements
from dyorc.planner.program.graph import TensorProgram
from dyorc.planner.program.graph_reader import Reader
from dyorc.planner.program.randomness import CounterBased, WithoutRandomness
from dyorc.planner.program.simplify import simplify

_SEED = 0x5EED_0F_CA97
"""An unlikely seed, to see whether a module has set another. The states of all generators are restored afterwards."""
Keywords: TypeAlias = Mapping[str, Any]
"""Inputs by name."""


@dataclass(frozen=True)
class ExportedCall:
    """One call of a module that is captured."""

    name: str
    module: nn.Module
    example: Example

    @staticmethod
    def of(name: str, module: nn.Module, inputs: Sequence[Any], keywords: Keywords | None) -> "ExportedCall":
        name = name or type(getattr(module, "_orig_mod", module)).__name__
        try:
            return ExportedCall(name, module, Example.of(inputs, keywords))
        except ProgramCaptureError as error:
            raise ProgramCaptureError(f"{name}: {error}") from error

    def with_one_sample_more(self) -> "ExportedCall":
        more = [tensor.new_empty((len(tensor) + 1, *tensor.shape[1:])) for tensor in self.example.tensors]
        return replace(self, example=self.example.with_tensors(more))

    def answers(self) -> TensorProgram:
        structure = ""

        def pick(answer: Any) -> tuple[torch.Tensor, ...]:
            nonlocal structure
            tensors, spec = tensors_in(answer)
            structure = treespec_dumps(spec)
            return tensors

        with torch.no_grad():
            reader = self.exported(pick, is_trained=False)
        call_structure = treespec_dumps(self.example.structure)
        return replace(simplify(reader.inference()), call_structure=call_structure, answer_structure=structure)

    def exported(self, pick: Pick, *, is_trained: bool) -> Reader:
        """Exports the call, and returns a reader of its graph."""
        try:
            return self._exported(pick, is_trained=is_trained)
        except (Exception, SystemExit) as error:
            # torch says in more than one way that a parameter gets no gradient
            if not is_trained or not (frozen := self._without_gradients(pick)):
                raise self._refused(error) from error
        warnings.warn(
            f"{self.name}: no gradient reaches {', '.join(frozen)}; the plan does not train it", CaptureWarning, stacklevel=3
        )
        try:
            return self._exported(pick, frozen, is_trained=True)
        except (Exception, SystemExit) as error:
            raise self._refused(error) from error

    def _refused(self, error: BaseException) -> ProgramCaptureError:
        return capture_error_of(self.name, error, self.module)

    def _exported(self, pick: Pick, frozen: Sequence[str] = (), *, is_trained: bool) -> Reader:
        from torch._functorch.aot_autograd import aot_export_module  # takes a second to import

        options: dict[str, Any] = {"trace_joint": True, "output_loss_index": 0} if is_trained else {"trace_joint": False}
        with self._without_elements(pick, frozen, is_trained=is_trained) as (flat, examples):
            exported: Any = aot_export_module(flat, examples, decompositions=decompositions(), **options)
        return Reader(self.name, exported[0], exported[1], flat)

    def _without_gradients(self, pick: Pick) -> tuple[str, ...]:
        """Which parameters get no gradient."""
        try:
            with self._without_elements(pick, (), is_trained=True) as (flat, examples):
                trained = {n: p for n, p in zip(flat.parameter_names, flat.parameters(), strict=True) if p.requires_grad}
                gradients = torch.autograd.grad(flat(*examples)[0], [*trained.values()], allow_unused=True)
        except (Exception, SystemExit):
            return ()  # gradients are not the reason: torch's first error says more
        return tuple(name for name, gradient in zip(trained, gradients, strict=True) if gradient is None)

    @contextmanager
    def _without_elements(
        self, pick: Pick, frozen: Sequence[str], *, is_trained: bool
    ) -> Generator[tuple[FlatModule, tuple[torch.Tensor, ...]]]:
        """A flat module and its inputs with fake tensors of the CPU, and the modes in which torch is to see them.

        Torch would compute the whole step with real ones. On `meta`, it has no gradient of some operations.
        """
        from torch._subclasses import FakeTensorMode
        from torch.nn.attention import SDPBackend, sdpa_kernel

        # attention that has a mask becomes many operations by the formula of torch, and so does what oneDNN computes as a whole
        with (
            preserve_random_states(),
            FakeTensorMode(allow_non_fake_inputs=True),
            sdpa_kernel(SDPBackend.MATH),
            _without_onednn(),
            _exporting(),
        ):
            module = strip_elements(self.module, _fake, frozen)
            flat = FlatModule(
                module if is_trained else module.eval(), self.example, pick, _training if is_trained else _answering
            )
            yield flat, tuple(map(_fake, self.example.tensors))


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype)


@contextmanager
def _training(inputs: Sequence[torch.Tensor], step: torch.Tensor) -> Generator[CounterBased]:
    """Looks at each call of torch, computes some by formulas, and draws what any split can draw."""
    with ByFormula(), Watch(inputs), _seed_untouched(), CounterBased(step) as draws:
        yield draws


@contextmanager
def _answering(inputs: Sequence[torch.Tensor], step: torch.Tensor) -> Generator[WithoutRandomness]:
    """The same, without draws."""
    with ByFormula(), Watch(inputs), WithoutRandomness() as none:
        yield none


@contextmanager
def _seed_untouched() -> Generator[None]:
    """Refuses a module that sets torch's seed: what it draws after that is the same in each step, and a plan's draws are not."""
    generator = torch.default_generator
    generator.manual_seed(_SEED)
    yield
    if generator.initial_seed() != _SEED:
        raise TypeError("the module sets torch's seed when it is called: a plan draws other numbers in each step; set it before")


@contextmanager
def _without_onednn() -> Generator[None]:
    """What `torch.backends.mkldnn.flags` does; that warns of what it does not touch."""
    was_enabled = torch._C._get_mkldnn_enabled()  # pyright: ignore[reportPrivateUsage]
    torch._C._set_mkldnn_enabled(False)  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_enabled)  # pyright: ignore[reportPrivateUsage]


@contextmanager
def _exporting() -> Generator[None]:
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


@contextmanager
def preserve_random_states() -> Generator[None]:
    """Restores the states of all random generators on the CPU afterwards: those of Python, NumPy and torch."""
    python, numpy = random.getstate(), np.random.get_state()  # the global one is meant
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
