"""How much memory the residents will take that a call returns: known before it runs, so that a limit holds while batches run.

Until a batch has ended, a process holds both what its calls took and what they return.
"""

from collections.abc import Iterable, Sequence

from dyorc.core.tensor import DType, TensorRef
from dyorc.engine.model.program_call import Call


class ResidentGrowth:
    """What a program's residents come to, as its last batches had it.

    A call is expected to return as much as it takes, and as much more as the calls before it; one that makes residents again,
    as much as these had.

    Attributes:
        num_bytes: By how much the residents that a call returns exceed those that it takes. It rises at once to the most of a
            batch, and falls by half of the difference with each batch.
    """

    __slots__ = ("num_bytes",)

    def __init__(self) -> None:
        self.num_bytes = 0

    def observe(self, calls: Iterable[Call], outputs: Iterable[Sequence[TensorRef]]) -> None:
        """Learns from a batch that has ended."""
        most = 0
        for call, returned in zip(calls, outputs, strict=True):
            if not call.chain:
                most = max(most, _residents_in(returned) - _residents_in(call.operands))
        self.num_bytes = max(most, (self.num_bytes + most) // 2)

    def expect(self, call: Call) -> int:
        """Returns how many bytes the process of a call will hold in addition while it runs, and until its result was taken."""
        if not call.callee.signature.outputs.has_residents:
            return 0
        if call.restores is not None and (lost := _residents_in(call.restores.future.tensors)):
            return lost
        overwritten = sum(call.operands[at].num_bytes for at in call.callee.signature.consumed) if not call.chain else 0
        return max(0, _residents_in(call.operands) - overwritten + self.num_bytes)


def _residents_in(tensors: Iterable[TensorRef]) -> int:
    return sum(tensor.num_bytes for tensor in tensors if tensor.dtype is DType.RESIDENT)
