"""What a workflow may do with a resident: pass it, whole, to a program of the group that made it. All else is refused here."""

from dyorc.authoring.program import Program
from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import OutputKind
from dyorc.authoring.spec import TensorSpec
from dyorc.authoring.workflow import Workflow
from dyorc.engine.model.futures import Argument
from dyorc.engine.model.program_call import Call
from dyorc.errors import InvalidInputError


def check_passed(callee: Program | Workflow, spec: TensorSpec, value: object) -> None:
    """Checks what is passed for a parameter that is a resident, or a resident that is passed for any, returned or yielded.

    Raises:
        InvalidInputError: If it may not be.
    """
    if _is_fine(callee, spec, value):
        return
    where = f"{callee!r}: {spec.name!r}"
    if not isinstance(value, Ref):
        raise InvalidInputError(f"{where} is a resident, got {type(value).__name__}; pass the Ref that a program returned")
    if value.field is None:
        raise InvalidInputError(f"{where} is a resident, got the whole of {list(value.outputs.names)}; {how_to_pick(value)}")
    given = value.outputs.tensors[value.field]
    producer = value.future.producer
    by = f" of program {producer.callee.name!r}" if isinstance(producer, Call) else ""
    if not given.is_resident:
        raise InvalidInputError(f"{where} is a resident, got a tensor, {given.name!r}{by}")
    if isinstance(callee, Workflow):
        raise InvalidInputError(
            f"{where} got the resident {given.name!r}{by}, which stays in its process: a workflow neither takes nor returns one"
        )
    if not spec.is_resident:
        raise InvalidInputError(f"{where} is a tensor, got the resident {given.name!r}{by}")
    if value.views:
        raise InvalidInputError(f"{where} got a part of the resident {given.name!r}{by}, which is no tensor; pass it whole")
    if isinstance(callee, Program) and isinstance(producer, Call) and producer.callee.group != callee.group:
        raise InvalidInputError(
            f"{where} got the resident {given.name!r}{by}, which is in group {producer.callee.group!r}, not in {callee.group!r}; "
            f"declare both programs with the same group to let them share a process"
        )


def _is_fine(callee: Program | Workflow, spec: TensorSpec, value: object) -> bool:
    """Returns whether a resident is passed whole to a program of its group, as it nearly always is."""
    if not isinstance(value, Ref) or value.field is None or value.views or not spec.is_resident:
        return False
    producer = value.future.producer
    return (
        isinstance(callee, Program)
        and isinstance(producer, Call)
        and producer.callee.group == callee.group
        and value.outputs.tensors[value.field].is_resident
    )


def check_consumed(callee: Program, arguments: tuple[Argument, ...]) -> None:
    """Checks that a call gets no second view of a resident that it overwrites.

    Raises:
        InvalidInputError: If it does.
    """
    for at in callee.signature.consumed:
        mine = arguments[at]
        for other, argument in enumerate(arguments):
            if other != at and argument.future is mine.future and argument.field == mine.field:
                first, second = (callee.signature.inputs[index].name for index in (at, other))
                raise InvalidInputError(f"{callee!r} overwrites the resident {first!r}, and got the same one as {second!r}")


def refusal_to_read(ref: Ref, does: str) -> str:
    """Returns why a workflow may not look at a value, if it is a resident or is grouped with one; empty if it may."""
    chosen = ref.outputs.tensors if ref.field is None else (ref.outputs.tensors[ref.field],)
    for spec in chosen:
        if spec.is_resident:
            instead = "; pass it to a program of its group, and use what that returns"
            if len(chosen) > 1:
                instead = f", one of {list(ref.outputs.names)}; take the tensors one by one"
            return f"{does} the resident {spec.name!r}, which stays in the process of its program{instead}"
    return ""


def how_to_pick(ref: Ref) -> str:
    """Returns how to take one of several outputs."""
    return f"pick one, like ref[{ref.outputs.names[0]!r}]" if ref.outputs.kind is OutputKind.FIELDS else "pick one, like ref[0]"
