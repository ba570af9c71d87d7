"""Whether this machine has the memory to compute a step on one device."""

from math import prod
from pathlib import Path

from dyorc.errors import ProgramCaptureError
from dyorc.planner.program.graph import TensorProgram, ValueKind

_COPIES_OF_WEIGHTS = 4
"""Weights and gradients, of the module and of the program."""
_BYTES = 8


def check_memory(program: TensorProgram) -> None:
    """Refuses what would need more memory than is free.

    Raises:
        ProgramCaptureError: So it is.
    """
    weights = sum(prod(value.shape) for value in program.values.values() if value.kind is not ValueKind.ACTIVATION)
    activations = sum(prod(value.shape) for value in program.values.values() if value.kind is ValueKind.ACTIVATION)
    needed, free = _BYTES * (_COPIES_OF_WEIGHTS * weights + activations), _free_bytes()
    if free is not None and needed > free:
        raise ProgramCaptureError(
            f"{program.name} needs about {needed / 1e9:,.1f} GB to run beside its captured program on one device, and "
            f"{free / 1e9:,.1f} GB are free: compare a smaller one of its kind, and plan this one without (--no-compare)"
        )


def _free_bytes() -> int | None:
    """What the machine has free; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
