"""DyOrc serves dynamic workflows: requests that pass through tensor programs, where the data decides what runs next."""

from typing import TYPE_CHECKING, Any

from dyorc.authoring.batching import pad
from dyorc.authoring.decisions import choose, gather, when
from dyorc.authoring.memory import empty
from dyorc.authoring.program import Program, num_threads, program
from dyorc.authoring.ref import Ref
from dyorc.authoring.spec import Bytes, Finite
from dyorc.authoring.workflow import Workflow, workflow
from dyorc.errors import DyOrcError, InvalidInputError, ProgramError
from dyorc.orchestrator.local import run

if TYPE_CHECKING:
    from dyorc.client import AsyncClient, Client

__all__ = [
    "AsyncClient",
    "Bytes",
    "Client",
    "DyOrcError",
    "Finite",
    "InvalidInputError",
    "Program",
    "ProgramError",
    "Ref",
    "Workflow",
    "choose",
    "empty",
    "gather",
    "num_threads",
    "pad",
    "program",
    "run",
    "when",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """The clients are imported when they are first used: most processes have none, and httpx takes its time."""
    if name in ("AsyncClient", "Client"):
        from dyorc import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
