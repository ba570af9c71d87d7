"""Finds a device by its name in the options of a program. Any thread."""

import threading
from collections.abc import Callable

from dyorc.devices.accelerator import Accelerator
from dyorc.devices.cuda_accelerator import CudaAccelerator
from dyorc.errors import MissingDeviceError

HOST = "cpu"
"""The host's memory, which is no device of its own."""

KINDS: dict[str, Callable[[int], Accelerator]] = {"cuda": CudaAccelerator}
"""What makes a device of each kind, by its index. The one place that knows the kinds."""

_devices: dict[str, Accelerator] = {}
_lock = threading.Lock()


def accelerator_named(name: str | None) -> Accelerator | None:
    """Returns the device of a name such as ``cuda`` (the first one) or ``cuda:1``; None for the host: ``cpu``, or None.

    Raises:
        MissingDeviceError: If there is no such device in this process.
    """
    kind, _, index = (name or HOST).partition(":")
    if kind == HOST:
        return None
    if kind not in KINDS:
        raise MissingDeviceError(f"device {name!r} is of no known kind; expected {HOST!r} or one of {sorted(KINDS)}")
    full_name = f"{kind}:{index or 0}"
    with _lock:  # one object for each device: it owns a stream
        if full_name not in _devices:
            _devices[full_name] = KINDS[kind](int(index or 0))
        return _devices[full_name]


def forget_devices() -> None:
    """Forgets the devices that were found so far: the next look makes new ones. For tests that add a kind."""
    with _lock:
        _devices.clear()
