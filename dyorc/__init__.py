"""DyOrc serves dynamic workflows: requests that pass through tensor programs, where the data decides what runs next."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("DyOrc needs Linux, or macOS for servers in one process. Under Windows, install it in WSL2.")

if TYPE_CHECKING:
    from dyorc import openai, programs
    from dyorc.authoring.array_memory import empty
    from dyorc.authoring.batching import pad
    from dyorc.authoring.current_request import request, requests
    from dyorc.authoring.decisions import choose, gather, when
    from dyorc.authoring.mapping import map_calls as map
    from dyorc.authoring.program import Program, num_threads, program
    from dyorc.authoring.ref import Ref
    from dyorc.authoring.resident import ChainCall, Consumed, Resident
    from dyorc.authoring.spec import Bytes, Finite
    from dyorc.authoring.stream import Stream, collect
    from dyorc.authoring.values import File
    from dyorc.authoring.weights import load_module
    from dyorc.authoring.workflow import Workflow, workflow
    from dyorc.client import AsyncClient, Client
    from dyorc.core.request import RequestInfo
    from dyorc.errors import DyOrcError, InvalidInputError, ProgramError
    from dyorc.gateway.http.handler_calls import call, stream
    from dyorc.local import run
    from dyorc.server.asgi_application import asgi

__all__ = [
    "AsyncClient",
    "Bytes",
    "ChainCall",
    "Client",
    "Consumed",
    "DyOrcError",
    "File",
    "Finite",
    "InvalidInputError",
    "Program",
    "ProgramError",
    "Ref",
    "RequestInfo",
    "Resident",
    "Stream",
    "Workflow",
    "asgi",
    "call",
    "choose",
    "collect",
    "empty",
    "gather",
    "load_module",
    "map",
    "num_threads",
    "openai",
    "pad",
    "program",
    "programs",
    "request",
    "requests",
    "run",
    "stream",
    "when",
    "workflow",
]


_HOMES = {
    "dyorc.authoring.batching": ("pad",),
    "dyorc.authoring.current_request": ("request", "requests"),
    "dyorc.authoring.decisions": ("choose", "gather", "when"),
    "dyorc.authoring.array_memory": ("empty",),
    "dyorc.authoring.mapping": ("map",),
    "dyorc.authoring.program": ("Program", "num_threads", "program"),
    "dyorc.authoring.ref": ("Ref",),
    "dyorc.authoring.resident": ("ChainCall", "Consumed", "Resident"),
    "dyorc.authoring.stream": ("Stream", "collect"),
    "dyorc.authoring.spec": ("Bytes", "Finite"),
    "dyorc.authoring.values": ("File",),
    "dyorc.authoring.workflow": ("Workflow", "workflow"),
    "dyorc.client": ("AsyncClient", "Client"),
    "dyorc.core.request": ("RequestInfo",),
    "dyorc.errors": ("DyOrcError", "InvalidInputError", "ProgramError"),
    "dyorc.gateway.http.handler_calls": ("call", "stream"),
    "dyorc.local": ("run",),
    "dyorc.server.asgi_application": ("asgi",),
    "dyorc.authoring.weights": ("load_module",),
}
_MODULES = ("openai", "programs")
_OWN_NAMES = {"map": "map_calls"}
"""Names in their modules of what would hide a function of Python there."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
"""Everything is imported on first use: a supervisor needs none of it, and most processes have no use for the client."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dyorc.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), _OWN_NAMES.get(name, name))
    return found
