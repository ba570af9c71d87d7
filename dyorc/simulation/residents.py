"""Residents in a simulated world: numbers that stay in the process that made them, and take room there.

A simulated program with residents returns one number, and each of its residents holds the same number: so what a chain of calls
computes follows from its inputs, like everything else here. Only the engine decides where a call runs and what is dropped.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count

from dyorc.authoring.program import Program
from dyorc.core.tensor import BlockId, DType, TensorRef
from dyorc.engine.actions import DispatchBatch
from dyorc.errors import InternalError
from dyorc.simulation.plain_evaluation import operand_of, tensor_of
from dyorc.simulation.value_draws import Value, value_of
from dyorc.simulation.workload import Deployment


def process_of(program: Program, number: int) -> str:
    """Returns the process of a program's replica: the group's, which its programs share; empty if it has none."""
    return "" if program.options.group is None else f"{program.options.group}#{number}"


class SimulatedResidents:
    """What the processes of a world hold.

    Attributes:
        num_bytes: Of each process's residents, by the process's name.
        most_bytes: The most that each has held.
    """

    def __init__(self) -> None:
        self.num_bytes = Counter[str]()
        self.most_bytes = Counter[str]()
        self._held: dict[BlockId, tuple[Value, int]] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._held)

    def outputs(self, action: DispatchBatch, process: str, deployment: Deployment) -> list[tuple[TensorRef, ...]]:
        """Returns what the calls of a batch return, call by call; their residents are held from now on.

        Raises:
            InternalError: If a call runs where its residents are not.
        """
        return [self._outputs(action, operands, process, deployment) for operands in action.operands]

    def _outputs(
        self, action: DispatchBatch, operands: Sequence[TensorRef], process: str, deployment: Deployment
    ) -> tuple[TensorRef, ...]:
        values: list[Value] = []
        num_bytes = deployment.added_bytes(operands, action.statics)
        for tensor in operands:
            if tensor.dtype is not DType.RESIDENT:
                values.append(operand_of(tensor))
                continue
            held = self._held.get((tensor.holder, tensor.block))
            if held is None or tensor.holder != process:
                raise InternalError(f"a call of {action.program.name!r} in {process!r} takes a resident of {tensor.holder!r}")
            values.append(held[0])
            num_bytes += held[1]
        value = value_of(action.program, values)
        return tuple(
            [
                self._keep(process, value, num_bytes) if spec.is_resident else tensor_of(value)
                for spec in action.program.signature.outputs.tensors
            ]
        )

    def _keep(self, process: str, value: Value, num_bytes: int) -> TensorRef:
        number = next(self._numbers)
        self._held[process, number] = value, num_bytes
        self.num_bytes[process] += num_bytes
        self.most_bytes[process] = max(self.most_bytes[process], self.num_bytes[process])
        return TensorRef(dtype=DType.RESIDENT, shape=(), num_bytes=num_bytes, holder=process, block=number)

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Drops residents."""
        for block in blocks:
            if (held := self._held.pop(block, None)) is not None:
                self.num_bytes[block[0]] -= held[1]
