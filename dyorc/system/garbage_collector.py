"""How the processes of a server collect garbage: rarely, because requests leave no cycles behind (the engine cuts them)."""

import contextlib
import gc
from collections.abc import Generator
from typing import Any

_LEAST_NEW, _MOST_NEW = 50_000, 1_000_000
"""A collection of young objects begins when so many more have been made than have died."""
_OLDER = (20, 100)
_MIN_GARBAGE = 0.02
"""A collection that finds less, in proportion to the objects that it began with, was in vain."""


def settle_garbage_collector() -> None:
    """Exempts the present objects from collection: they live as long as the process. Call it once the process is ready.

    Without this, a tenth of the time went into walking over Ray's half a million objects. From then on, collections come the more
    rarely the less they find: with 10,000 requests in flight, 600,000 objects live at a time and die without a collection, and
    one for every 50,000 took a third of the engine's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_LEAST_NEW, *_OLDER)
    if _adapt not in gc.callbacks:
        gc.callbacks.append(_adapt)


def _adapt(phase: str, info: dict[str, Any]) -> None:
    """Puts the next collection off after one in vain, and brings it back after one that was needed."""
    if phase != "stop" or info["generation"] > 0:
        return
    num_new = gc.get_threshold()[0]
    is_vain = info["collected"] < _MIN_GARBAGE * num_new
    gc.set_threshold(min(2 * num_new, _MOST_NEW) if is_vain else _LEAST_NEW, *_OLDER)


@contextlib.contextmanager
def pause_garbage_collector() -> Generator[None]:
    """Pauses the collector while modules are imported, since nearly all their objects stay. With it, importing torch takes an
    eighth longer.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
