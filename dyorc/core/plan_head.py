"""The head of a plan's file: what the server reads of it to reserve room for the processes, without torch or the planner.

`dyorc.planner.plan` reads and writes the whole file, with these rows; it also checks the digest.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.errors import PlanError

FORMAT = "dyorc-plan"
VERSION = 2


class Header(msgspec.Struct):
    """The fields by which a file of any version is recognized."""

    format: str
    version: int


class MeshRow(msgspec.Struct, forbid_unknown_fields=True):
    """A mesh; each axis is its name, its size, and whether it is one of time."""

    name: str
    axes: list[tuple[str, int, bool]]
    ranks: list[int]


class InferenceRow(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a plan of a model that answers takes and returns."""

    inputs: list[str]
    outputs: list[str]
    max_samples: int
    batch_dims: dict[str, list[int]]
    is_proved: bool
    call_structure: str = ""
    answer_structure: str = ""


class _HeadRows(msgspec.Struct):
    digest: str
    meshes: list[MeshRow]
    inference: InferenceRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead:
    """A plan as a whole.

    Attributes:
        digest: Equal for equal plans.
        num_ranks: The processes that run it.
        max_samples: The most samples that a batch may hold.
    """

    digest: str
    num_ranks: int
    max_samples: int


def check_header(text: bytes | str) -> None:
    """Checks that a text is a plan of this version.

    Raises:
        PlanError: It is not.
    """
    try:
        header = msgspec.json.decode(text, type=Header)
    except DECODE_ERRORS as error:
        raise PlanError(f"this is not a plan, or only a part of one: {error}") from error
    if header.format != FORMAT:
        raise PlanError(f"expected a single plan, format {FORMAT!r}, and found format {header.format!r}")
    if header.version != VERSION:
        raise PlanError(f"expected a plan of version {VERSION} and found version {header.version}: plan again with this DyOrc")


def read_plan_head(path: str) -> PlanHead:
    """Reads the head of a plan's file.

    Raises:
        PlanError: The file cannot be read, is not a plan, or its plan cannot be served; names the file.
    """
    try:
        return _read(path, Path(path).stat().st_mtime_ns)
    except OSError as error:
        raise PlanError(f"the plan {path} cannot be read: {error.strerror}") from error


@lru_cache
def _read(path: str, changed_ns: int) -> PlanHead:
    text = Path(path).read_bytes()
    try:
        check_header(text)
        rows = msgspec.json.decode(text, type=_HeadRows)
    except (PlanError, *DECODE_ERRORS) as error:
        raise PlanError(f"the plan {path} cannot be read: {error}") from error
    if rows.inference is None:
        raise PlanError(f"{path} is the plan of a training step; make one of a model that answers: dyorc plan --inference")
    if not rows.inference.is_proved:
        raise PlanError(f"{path} has not been proved: `dyorc plan` does that, and `mark_proved` of dyorc.planner.verify")
    num_ranks = 1 + max((rank for mesh in rows.meshes for rank in mesh.ranks), default=-1)
    if num_ranks < 1:
        raise PlanError(f"the plan {path} cannot be read: expected meshes with ranks from 0 on, found none")
    return PlanHead(digest=rows.digest, num_ranks=num_ranks, max_samples=rows.inference.max_samples)
