"""The garbage collector of a process that serves."""

import contextlib
import gc
from collections.abc import Generator


def settle_garbage_collector() -> None:
    """Keeps the collector away from objects that live as long as the process.

    Requests leave no cycles behind (the engine cuts them), so there is little to find; without this, a tenth of the time went
    into walking over Ray's half a million objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@contextlib.contextmanager
def pause_garbage_collector() -> Generator[None]:
    """Keeps the collector off while modules are imported: nearly all that they make stays. torch alone takes an eighth longer
    with it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
