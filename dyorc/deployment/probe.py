"""A process that tries whether a target can be loaded: `python -m dyorc.deployment.probe TARGET DESCRIPTOR`.

Code that ends the interpreter, or never comes back, does so here and not in a server. It writes the target's code to the
descriptor, or what is wrong with it.
"""

import os
import sys
import traceback

import msgspec

from dyorc.authoring.bundles import Bundle
from dyorc.authoring.loading import absolute, import_place, name_in, parts_of, programs_of
from dyorc.errors import DyOrcError, ModuleImportError, text_of

_NICENESS = 10
"""The server that asks has requests to answer."""


class ProbeResult(msgspec.Struct):
    """What came of it.

    Attributes:
        bundle: The target's code.
        model: The name of the workflow or program.
        programs: The names of its programs.
        error: What is wrong, if something is.
        traceback: The user's lines that led there.
    """

    bundle: Bundle | None = None
    model: str = ""
    programs: tuple[str, ...] = ()
    error: str = ""
    traceback: str = ""


def main() -> None:
    """Runs it."""
    target, descriptor = absolute(sys.argv[1]), int(sys.argv[2])
    os.nice(_NICENESS)
    with os.fdopen(descriptor, "wb") as end:
        end.write(msgspec.json.encode(_try(target)))
    sys.stdout.flush()
    os._exit(0)  # the module may have started threads


def _try(target: str) -> ProbeResult:
    place = target
    try:
        place, name = parts_of(target)
        module = import_place(place)
        found = name_in(module, place, name)
        programs = programs_of(found)
        return ProbeResult(Bundle.of(target, module.__name__), found.name, tuple(program.name for program in programs))
    except ModuleImportError as error:
        return ProbeResult(error=str(error), traceback=error.user_traceback)
    except DyOrcError as error:
        return ProbeResult(error=str(error))
    except BaseException as error:
        text = f"{os.path.basename(place)} cannot be imported: it raised {type(error).__name__}: {text_of(error)}"
        return ProbeResult(error=text, traceback="".join(traceback.format_exception_only(error)))


if __name__ == "__main__":
    main()
