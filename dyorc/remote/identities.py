"""Identities of requests whose inputs lie with a gateway."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

from dyorc.arrays import Array
from dyorc.authoring.signature import StaticValue
from dyorc.orchestrator.identity import InputsIdentity
from dyorc.orchestrator.tensors import Tensors
from dyorc.tensor import TensorRef


class _Stored(Sequence[Array]):
    """Inputs that are read, where they lie, each time somebody looks."""

    def __init__(self, refs: Sequence[TensorRef], tensors: Tensors) -> None:
        self._refs = refs
        self._tensors = tensors

    def __iter__(self) -> Iterator[Array]:
        return iter(self._tensors.read(self._refs))

    def __len__(self) -> int:
        return len(self._refs)

    @overload
    def __getitem__(self, at: int) -> Array: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Array]: ...
    def __getitem__(self, at: Any) -> Any:
        return self._tensors.read(self._refs)[at]


def identity_of(workflow: str, inputs: Sequence[TensorRef], statics: tuple[StaticValue, ...], tensors: Tensors) -> InputsIdentity:
    """Returns the identity of a request. With inputs on another machine, which would have to be read, it equals only itself."""
    if tensors.is_near(inputs):
        return InputsIdentity(workflow, _Stored(inputs, tensors), statics)
    identity = InputsIdentity(workflow, (), statics)
    identity.close()
    return identity
