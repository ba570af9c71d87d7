"""Imports a target in a process before the server imports it: `python -m dyorc.deployment.import_check TARGET DESCRIPTOR`.

Code that ends the interpreter, or never returns, does so there and not in a server. The process writes the target's code, or an
error, to the descriptor.
"""

import os
import sys
import traceback
from functools import partial
from typing import NoReturn

import msgspec

from dyorc.authoring.bundles import Bundle
from dyorc.authoring.loading import absolute, import_place, name_in, parts_of, programs_of
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow, as_model
from dyorc.deployment.code_process import ProcessResult, answer_and_exit, run_module
from dyorc.errors import DefinitionError, DyOrcError, ModuleImportError, text_of
from dyorc.models.offers import ModelKey, Offer


class ProbeResult(msgspec.Struct):
    """The result of an import.

    Attributes:
        bundle: The target's code; None if it cannot be imported.
        model: The name of the workflow or program.
        programs: The names of its programs.
        offer: The model as it would be offered; None if only workflows can call it, which is refused where it is loaded.
        error: Why it cannot be imported.
        traceback: The user's lines of the error's traceback.
    """

    bundle: Bundle | None = None
    model: str = ""
    programs: tuple[str, ...] = ()
    offer: Offer | None = None
    error: str = ""
    traceback: str = ""


async def check_import(target: str, timeout_s: float) -> ProbeResult:
    """Returns a target's code.

    Raises:
        ModuleImportError: If it cannot be loaded; has the user's lines of the traceback.
    """
    subject = f"{target} cannot be loaded: importing it"
    return _result_of(target, await run_module("dyorc.deployment.import_check", [target], timeout_s, subject))


def _result_of(target: str, ended: ProcessResult) -> ProbeResult:
    result = ended.read(ProbeResult)
    if result is None:
        why = f"the process that tried to import it {ended.how}" + ", and wrote no result that can be read" * bool(ended.text)
        raise ModuleImportError(f"{target} cannot be loaded: {why}", ended.printed)
    if result.bundle is None:
        raise ModuleImportError(result.error, result.traceback)
    return result


# The process that imports the target


def main() -> NoReturn:
    """Imports the target, and writes the result."""
    target, descriptor = absolute(sys.argv[1]), int(sys.argv[2])
    answer_and_exit(descriptor, partial(_try, target))


def _try(target: str) -> ProbeResult:
    place = target
    try:
        place, name = parts_of(target)
        module = import_place(place)
        definition = name_in(module, place, name)
        programs = tuple(program.name for program in programs_of(definition))
        return ProbeResult(Bundle.of(target, module.__name__), definition.name, programs, _offer_of(definition))
    except ModuleImportError as error:
        return ProbeResult(error=str(error), traceback=error.user_traceback)
    except DyOrcError as error:
        return ProbeResult(error=str(error))
    except BaseException as error:
        text = f"{os.path.basename(place)} cannot be imported: it raised {type(error).__name__}: {text_of(error)}"
        return ProbeResult(error=text, traceback="".join(traceback.format_exception_only(error)))


def _offer_of(definition: Workflow | Program) -> Offer | None:
    try:
        return Offer.of(ModelKey(definition.name), as_model(definition))
    except DefinitionError:
        return None


if __name__ == "__main__":
    main()
