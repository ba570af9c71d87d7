"""Programs that run by a plan, over several processes: what is known of the plan's file, and who loads the module then.

The file is read here as far as the server needs it to reserve room for the processes, without torch; whoever loads the program
reads all of it, and checks it.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec

from dyorc.errors import PlanError

_FORMAT = "dyorc-plan"


class LoadModule(Protocol):
    """Loads modules in place of `dyorc.load_module`."""

    def __call__(self, make: Callable[[], Any], path: Path, device: str) -> Any | None:
        """Returns what stands for the module; None if this one is to be loaded as usual."""
        ...


load_module_by: ContextVar[LoadModule | None] = ContextVar("dyorc_load_module", default=None)
"""Who loads modules while a program is loaded that has a plan."""


class PlanHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan's file says of the whole.

    Attributes:
        digest: Stands for the plan.
        num_ranks: The processes that run it.
        max_samples: The most samples that a batch may hold.
    """

    digest: str
    num_ranks: int
    max_samples: int


class _Mesh(msgspec.Struct):
    ranks: list[int]


class _Inference(msgspec.Struct):
    max_samples: int
    is_proved: bool


class _File(msgspec.Struct):
    format: str
    digest: str
    meshes: list[_Mesh]
    inference: _Inference | None = None


def head_of(path: str) -> PlanHead:
    """Returns what a plan's file says of the whole.

    Raises:
        PlanError: It cannot be read, is no plan, or is one that cannot be served; names the file.
    """
    try:
        return _head_of(path, Path(path).stat().st_mtime_ns)
    except OSError as error:
        raise PlanError(f"the plan {path} cannot be read: {error.strerror}") from error


@lru_cache
def _head_of(path: str, changed_ns: int) -> PlanHead:
    try:
        file = msgspec.json.decode(Path(path).read_bytes(), type=_File)
    except msgspec.MsgspecError as error:
        raise PlanError(f"{path} is not a plan: {error}") from error
    if file.format != _FORMAT:
        raise PlanError(f"{path} is not a plan: its format is {file.format!r}, expected {_FORMAT!r}")
    if file.inference is None:
        raise PlanError(f"{path} is the plan of a training step; make one of a model that answers: dyorc plan --inference")
    if not file.inference.is_proved:
        raise PlanError(f"{path} has not been proved: `dyorc plan` does that, and `proved` of dyorc.planner.verify")
    num_ranks = 1 + max(rank for mesh in file.meshes for rank in mesh.ranks)
    return PlanHead(digest=file.digest, num_ranks=num_ranks, max_samples=file.inference.max_samples)
