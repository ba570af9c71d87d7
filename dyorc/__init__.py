"""DyOrc serves dynamic workflows: requests that pass through tensor programs, where the data decides what runs next."""

from dyorc.authoring.batching import pad
from dyorc.authoring.decisions import choose, gather, when
from dyorc.authoring.memory import empty
from dyorc.authoring.program import Program, num_threads, program
from dyorc.authoring.ref import Ref
from dyorc.authoring.spec import Bytes, Finite
from dyorc.authoring.workflow import Workflow, workflow
from dyorc.errors import DyOrcError, InvalidInputError, ProgramError
from dyorc.orchestrator.local import run

__all__ = [
    "Bytes",
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
