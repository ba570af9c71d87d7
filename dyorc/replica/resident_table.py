"""The residents of a process: Python objects that stay here, by number. Any thread.

All programs of a group share one table. A number is never used again, so a request for an object that is gone never gets another.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from dyorc.core.tensor import DType, TensorRef
from dyorc.transport.inbox import InputsLostError


@dataclass(frozen=True, slots=True)
class ResidentRows:
    """An output of a batch that stays here: one object per call, and the bytes of each. They are in no table yet."""

    objects: list[Any] = field(default_factory=list[Any])
    sizes: list[int] = field(default_factory=list[int])


class ResidentTable:
    """The objects of one process.

    Attributes:
        process: The name under which the engine knows the process; the same for all programs that share the table.
    """

    def __init__(self, process: str) -> None:
        self.process = process
        self._objects: dict[int, tuple[Any, int]] = {}
        self._numbers = count(1)
        self._num_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def num_bytes(self) -> int:
        """Bytes of all objects together, as their programs count them."""
        return self._num_bytes

    def add(self, resident: Any, num_bytes: int) -> int:
        """Keeps an object until it is released. Returns its number."""
        with self._lock:
            number = next(self._numbers)
            self._objects[number] = resident, num_bytes
            self._num_bytes += num_bytes
        return number

    def get(self, number: int) -> Any:
        """Returns the object of this number.

        Raises:
            InputsLostError: If it was released.
        """
        entry = self._objects.get(number)
        if entry is None:
            raise InputsLostError([(self.process, number)], f"process {self.process!r} no longer holds resident {number}")
        return entry[0]

    def release(self, numbers: Iterable[int]) -> None:
        """Drops objects. Numbers that are not known are ignored: they were dropped before."""
        self.take_out(numbers)

    def take_out(self, numbers: Iterable[int]) -> list[Any]:
        """Forgets objects and returns them, for the caller to drop where it takes no time from others."""
        dropped: list[Any] = []  # what an object does when it ends, it does after the lock is free
        with self._lock:
            for number in numbers:
                if (entry := self._objects.pop(number, None)) is not None:
                    self._num_bytes -= entry[1]
                    dropped.append(entry)
        return dropped

    def clear(self) -> None:
        """Drops all objects."""
        self.take_all()

    def take_all(self) -> list[Any]:
        """Forgets all objects and returns them, likewise."""
        return self.take_out(list(self._objects))

    # As the engine sees them

    def read(self, column: Sequence[TensorRef]) -> list[Any]:
        """Returns an input of a batch, call by call.

        Raises:
            InputsLostError: If one was released, or is in another process.
        """
        if strays := [(tensor.holder, tensor.block) for tensor in column if tensor.holder != self.process]:
            raise InputsLostError(strays, f"residents of process {strays[0][0]!r} cannot be read in {self.process!r}")
        return [self.get(tensor.block) for tensor in column]

    def keep(self, rows: ResidentRows, node: str) -> list[TensorRef]:
        """Adds an output of a batch. Returns references, call by call."""
        return [
            TensorRef(
                dtype=DType.RESIDENT, shape=(), num_bytes=num_bytes, node=node,
                holder=self.process, block=self.add(resident, num_bytes),
            )
            for resident, num_bytes in zip(rows.objects, rows.sizes, strict=True)
        ]  # fmt: skip
