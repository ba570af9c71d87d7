"""A batch that the engine has sent, as its tests see it."""

from dataclasses import dataclass, field
from typing import Any

from dyorc.core.arrays import Array
from dyorc.core.tensor import BlockId
from dyorc.engine.actions import DispatchBatch


@dataclass(frozen=True)
class Dispatched:
    """A batch on its replica, with the inputs as they were when it was sent; none if some were `lost` before."""

    action: DispatchBatch
    columns: list[list[Array]]
    lost: list[BlockId] = field(default_factory=list)

    @property
    def program(self) -> str:
        return self.action.program.name

    @property
    def size(self) -> int:
        return len(self.action.operands)

    def column(self, at: int = 0) -> list[Any]:
        """Returns the values of one input, call by call."""
        return [array.tolist() for array in self.columns[at]]
