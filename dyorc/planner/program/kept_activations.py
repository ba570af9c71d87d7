"""Has checkpoints (`torch.utils.checkpoint`) keep their activations, so that nothing is computed again in the backward pass.

What is computed twice draws random numbers twice; a captured program keeps activations, too.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch.utils.checkpoint as checkpoints


@contextmanager
def activations_kept() -> Generator[None]:
    """Runs modules as if they had no checkpoints. Not for several threads."""
    module: Any = checkpoints
    names = {"_checkpoint_without_reentrant_generator": _keep, "CheckpointFunction": _PlainFunction}
    before = {name: getattr(module, name) for name in names}
    try:
        for name, plain in names.items():
            setattr(module, name, plain)
        yield
    finally:
        for name, original in before.items():
            setattr(module, name, original)


def _keep(*args: object, **kwargs: object) -> Generator[None]:
    """What torch runs a checkpointed function between."""
    yield


class _PlainFunction:
    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """Calls the function."""
        return function(*args)
