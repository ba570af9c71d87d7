"""Shows import errors as the author of a module wants to see them: without our frames and those of the import system."""

import traceback
from pathlib import Path

from dyorc.errors import ModuleImportError, text_of

_OURS = frozenset(str(Path(__file__).with_name(name)) for name in ("loading.py", "bundle_imports.py"))

_NO_PACKAGE = "attempted relative import with no known parent package"


def import_error(module: str, error: Exception) -> ModuleImportError:
    """Returns the error to raise in place of the one that a module raised.

    Args:
        module: The imported module, as a person would name it.
    """
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list([frame for frame in shown.stack if _is_of_users(frame)])
    lines = shown.format() if shown.stack else shown.format_exception_only()
    text = f"{module} cannot be imported: {type(error).__name__}: {_text_of(error)}{_place_of(error, shown.stack)}"
    if module.endswith(".py") and _NO_PACKAGE in str(error):
        text += f"; a file named by its path is in no package: name its module, like pkg.{module.removesuffix('.py')}:flow"
    return ModuleImportError(text, "".join(lines))


def _is_of_users(frame: traceback.FrameSummary) -> bool:
    name = frame.filename
    return name not in _OURS and not name.startswith("<frozen importlib") and not name.endswith("/importlib/__init__.py")


def _text_of(error: Exception) -> str:
    return error.msg if isinstance(error, SyntaxError) else text_of(error)


def _place_of(error: Exception, stack: traceback.StackSummary) -> str:
    """Returns the last line of the user's code, or of what it called."""
    if isinstance(error, SyntaxError):
        return f" ({Path(error.filename or '?').name}, line {error.lineno})"
    return f" ({Path(stack[-1].filename).name}, line {stack[-1].lineno})" if stack else ""
