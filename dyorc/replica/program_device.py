"""The device of a loaded program: brings its inputs there, and its results back, or leaves them there.

Used by `ProgramExecutor`, on the thread that runs the program.
"""

from collections.abc import Callable, Sequence
from typing import Any

from dyorc.authoring.program import Program
from dyorc.authoring.spec import Framework, TensorSpec, ValueSpec
from dyorc.core.arrays import Array
from dyorc.core.tensor import DType, Shape
from dyorc.devices.accelerator import Accelerator
from dyorc.devices.device_rows import DeviceRows, dtype_of_tensor
from dyorc.devices.known_devices import accelerator_named
from dyorc.errors import ConfigurationError, InvalidInputError


class ProgramDevice:
    """A program on a device.

    Attributes:
        accelerator: The device.
        is_keeping: Whether results that lie on the device stay there as they are.
        chooses: Otherwise, whether one stays until it was copied on the device: its output's name, the tensor, and how many calls
            it holds. The others come to the host at once, together. None: all do.
    """

    def __init__(self, program: Program, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.is_keeping = False
        self.chooses: Callable[[str, Any, int], bool] | None = None
        self._name = program.name
        padding = program.options.pad
        self._padding = 0.0 if padding is None else padding.value
        self._is_batched = program.options.batched

    @classmethod
    def of(cls, program: Program) -> "ProgramDevice | None":
        """Returns the device that a program declares; None if that is the host.

        Raises:
            MissingDeviceError: If there is no such device in this process.
            ConfigurationError: If none of its tensors are torch's.
        """
        accelerator = accelerator_named(program.options.device)
        if accelerator is None:
            return None
        if not any(is_movable(spec) for spec in (*program.signature.inputs, *program.signature.outputs.tensors)):
            raise ConfigurationError(
                f"program {program.name!r} declares device={program.options.device!r}, and none of its tensors are torch.Tensor"
            )
        return cls(program, accelerator)

    # Inputs

    def send(self, array: Array) -> Any:
        """Begins to copy a whole input to the device, and returns it there."""
        return self.accelerator.copy_from_host(array)

    def gather(self, rows: DeviceRows, shape: Shape) -> Any:
        """Returns an input that lies on a device, at least in part, as the program gets it.

        Args:
            shape: Of each call, once it is padded.
        """
        batch = rows.gather(self.accelerator, shape, self._padding)
        return batch if self._is_batched else batch[0]

    # Results

    def keeps(self, spec: TensorSpec, part: Any) -> bool:
        """Returns whether a result has stayed on the device (`bring_back`)."""
        return is_movable(spec) and self.accelerator.holds(part)

    def bring_back(self, specs: Sequence[TensorSpec], parts: Sequence[Any]) -> Sequence[Any]:
        """Returns the results of a batch. What does not stay on the device is copied to the host, all at once."""
        leaving = [
            at
            for at, (spec, part) in enumerate(zip(specs, parts, strict=True))
            if is_movable(spec) and self.accelerator.holds(part) and not self._stays(spec.name, part)
        ]
        if not leaving:
            return parts
        arrays = iter(self.accelerator.copy_to_host([parts[at] for at in leaving]).wait())
        chosen = set(leaving)
        return [next(arrays) if at in chosen else part for at, part in enumerate(parts)]

    def _stays(self, name: str, part: Any) -> bool:
        if self.is_keeping or self.chooses is None:
            return self.is_keeping
        return self.chooses(name, part, part.shape[0] if self._is_batched and part.ndim else 1)

    def split(self, spec: TensorSpec, part: Any, num_calls: int, verb: str, cut_back: Callable[[Any], Any]) -> DeviceRows:
        """Returns a result that stays on the device, call by call, checked against the program's declaration.

        Args:
            verb: What the program did, for errors.
            cut_back: Removes the padding.

        Raises:
            InvalidInputError: If it is not what the program declares.
        """
        where = f"program {self._name!r} {verb}"
        rows: Any
        if not self._is_batched:
            rows = part[None]
        elif part.ndim == 0 or part.shape[0] != num_calls:
            raise InvalidInputError(
                f"{where} {spec.name!r} of shape {list(part.shape)} for a batch of {num_calls}, expected {num_calls} rows"
            )
        else:
            rows = cut_back(part)
        dtype = dtype_of_tensor(part, f"{where} {spec.name!r}")
        for row in rows if isinstance(rows, list) else rows[:1]:
            spec.check(dtype, tuple(row.shape), {}, where)
        return DeviceRows(self.accelerator, rows)

    def join(self, rows: Any) -> Any:
        """Returns a result that was computed call by call: on the device, if any of it is there."""
        if not isinstance(rows, list) or not any(isinstance(row, DeviceRows) for row in rows):
            return rows
        return DeviceRows(self.accelerator, [row[0] if isinstance(row, DeviceRows) else self.send(row) for row in rows])

    # Errors

    def written_text(self) -> str:
        """Returns the text of the error of a batch that wrote to an input that others read."""
        return (
            f"program {self._name!r} wrote to an input on device {self.accelerator.name}, which others read; "
            f"let it write to a clone()"
        )

    def explain(self, error: BaseException) -> str | None:
        """Returns the text of an exception that says that the device has no memory left; None if it says something else."""
        if not self.accelerator.is_out_of_memory(error):
            return None
        total = self.accelerator.total_bytes
        return f"program {self._name!r} finds no memory on device {self.accelerator.name}, which has {total} bytes: {error}"


def is_movable(spec: TensorSpec) -> bool:
    """Returns whether a declared tensor can be on a device: it is torch's, and holds numbers."""
    return (
        spec.framework is Framework.TORCH
        and not spec.is_resident
        and not isinstance(spec, ValueSpec)
        and spec.dtype is not DType.BYTES
    )
