"""DyOrc serves dynamic workflows: requests that pass through tensor programs, where the data decides what runs next."""

import importlib
from typing import TYPE_CHECKING, Any

from dyorc.authoring.batching import pad
from dyorc.authoring.decisions import choose, gather, when
from dyorc.authoring.memory import empty
from dyorc.authoring.program import Program, num_threads, program
from dyorc.authoring.ref import Ref
from dyorc.authoring.spec import Bytes, Finite
from dyorc.authoring.workflow import Workflow, workflow
from dyorc.errors import DyOrcError, InvalidInputError, ProgramError

if TYPE_CHECKING:
    from dyorc.client import AsyncClient, Client
    from dyorc.local import run

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


_LAZY = {"AsyncClient": "dyorc.client", "Client": "dyorc.client", "run": "dyorc.local"}
"""Imported on first use: most processes, such as those of programs, need none of them, and they are slow to import."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
