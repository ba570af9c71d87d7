"""Libraries that `dyorc-core` does not bring along: which extra has them, and the error where a missing one is needed.

Code that needs a library of an extra calls `require` before it imports it. Nothing is imported here.
"""

import importlib.util
import sys
from collections.abc import Mapping

from dyorc.errors import MissingLibraryError
from dyorc.version import DISTRIBUTION

_MODULES: Mapping[str, tuple[str, ...]] = {
    "ray": ("ray",),
    "torch": ("torch",),
    "redis": ("redis",),
    "planner": ("torch", "matplotlib", "networkx", "ortools", "pymetis", "scipy", "z3"),
    "traces": (
        "opentelemetry.sdk",
        "opentelemetry.exporter.otlp.proto.grpc",
        "opentelemetry.exporter.otlp.proto.http",
    ),
    "simulation": ("matplotlib",),
    "mcp": ("mcp",),
    "nghttp": ("ngh2",),
}
"""By extra, the modules that it installs."""


def require(extra: str, needed_by: str, otherwise: str = "", *, installs: str = "") -> None:
    """Returns if all libraries of an extra are installed.

    Args:
        extra: Its name in pyproject.toml.
        needed_by: What cannot be done without them: the subject of the error's first sentence.
        otherwise: What can be done instead, as the end of that sentence.
        installs: The extra that the error's command installs, if it is a larger one.

    Raises:
        MissingLibraryError: If one is not installed; names it, and the command that installs it.
    """
    for module in _MODULES[extra]:
        if not _is_installed(module):
            raise missing_library(module, installs or extra, needed_by, otherwise)


def missing_library(library: str, extra: str, needed_by: str, otherwise: str = "") -> MissingLibraryError:
    """Returns the error for a library that is not installed; for the arguments, see `require`."""
    text = f"{needed_by} needs {library}, which is not installed: {command_for(extra)}"
    return MissingLibraryError(f"{text}; {otherwise}" if otherwise else text, name=library)


def command_for(extra: str) -> str:
    """Returns the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def extra_of(module: str) -> str | None:
    """Returns the extra that is named after a module's package; None if there is none, or if the module is installed."""
    package = module.partition(".")[0]
    return package if package in _MODULES and not _is_installed(module) else None


def _is_installed(module: str) -> bool:
    if sys.modules.get(module) is not None:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False
