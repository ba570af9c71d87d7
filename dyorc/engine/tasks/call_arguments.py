"""What a workflow passes to the programs and workflows that it calls: checked, and made the arguments of a call."""

from collections.abc import Iterable, Sequence
from typing import Any

from dyorc.authoring.exact_values import same_statics
from dyorc.authoring.program import Program
from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.authoring.stream import Stream
from dyorc.authoring.workflow import Workflow
from dyorc.core.arrays import inline, is_frozen
from dyorc.core.tensor import DType
from dyorc.engine.model.futures import Argument, Future
from dyorc.engine.model.journal import Entry
from dyorc.engine.model.request_context import RequestContext
from dyorc.engine.tasks.resident_uses import check_passed, how_to_pick
from dyorc.errors import InvalidInputError, WorkflowError

OF_ANOTHER = "of another request; a Ref or Stream means something only in the request that made it, so keep none for later ones"
"""What is wrong with a Ref or Stream that a workflow kept from another request; follows "a Ref" or "a Stream"."""


def argument_of(callee: Program | Workflow, spec: TensorSpec, value: Any, goes_on: bool, owner: RequestContext) -> Argument:
    """Returns a call's argument: a Ref as it is, anything else as a tensor that travels with the call.

    Args:
        goes_on: Whether the run goes on, and may change the memory of what it has handed over before that is read.
        owner: The context of the request, whose Refs alone it may use.

    Raises:
        InvalidInputError: If the value may not be passed.
        WorkflowError: If it has several tensors.
    """
    if not isinstance(value, Ref):
        return _of_plain(callee, spec, value, goes_on, owner)
    field = value.field
    if value.future.owner is not owner:
        raise InvalidInputError(f"{callee!r}: {spec.name!r} got a Ref {OF_ANOTHER}")
    if spec.is_resident or (value.outputs.has_residents and field in value.outputs.residents):
        check_passed(callee, spec, value)
    if field is None:
        raise WorkflowError(
            f"{callee!r}: {spec.name!r} needs one tensor, got the whole of {list(value.outputs.names)}; {how_to_pick(value)}"
        )
    if isinstance(spec, ValueSpec) and not spec.reads(given := value.outputs.tensors[field]):
        raise InvalidInputError(
            f"{callee!r}: {spec.name!r} got a Ref to {given.shown}, expected {spec.shown}; the bytes of a Ref pass as "
            f"they are: await it, and pass what that gives"
        )
    return Argument(value.future, field, value.views)


def add_arguments(
    made: list[tuple[Argument, ...]], callee: Program | Workflow, rows: Iterable[Sequence[Any]], owner: RequestContext
) -> None:
    """Adds the arguments of calls whose run goes on, as `argument_of` makes them. Most are Refs that need no further check."""
    specs = callee.signature.inputs
    for values in rows:
        arguments: list[Argument] = []
        for spec, value in zip(specs, values, strict=True):
            if (
                type(value) is Ref
                and type(spec) is TensorSpec
                and value.field is not None
                and value.future.owner is owner
                and not (spec.is_resident or value.outputs.has_residents)
            ):
                arguments.append(Argument(value.future, value.field, value.views))
            else:
                arguments.append(argument_of(callee, spec, value, True, owner))
        made.append(tuple(arguments))


def _of_plain(callee: Program | Workflow, spec: TensorSpec, value: Any, goes_on: bool, owner: RequestContext) -> Argument:
    if spec.dtype is DType.RESIDENT:
        check_passed(callee, spec, value)
    if isinstance(value, Stream):
        raise InvalidInputError(
            f"{callee!r}: {spec.name!r} is one tensor, and a Stream was given; read it by `async for`, or all of it by "
            f"`await dyorc.collect(stream)`"
        )
    array = spec.array_of(value, f"{callee!r}: {spec.name!r}")
    if goes_on and (array is value or array.base is not None) and not is_frozen(array):
        array = array.copy()  # the workflow may write to it later
    return Argument(Future.ready(owner, inline(array)), 0)


def check_streams(callee: Program | Workflow, streams: Sequence[Any], owner: RequestContext) -> None:
    """Checks what is passed for parameters that are streams.

    Raises:
        InvalidInputError: If one is no Stream of this request, or one of other tensors.
    """
    for spec, stream in zip(callee.signature.streams, streams, strict=True):
        if not isinstance(stream, Stream):
            raise InvalidInputError(
                f"{callee!r}: {spec.name!r} is a stream, and a {type(stream).__name__} was given; pass the Stream itself, as the "
                f"call of a program or workflow that yields returned it"
            )
        if stream.parts.owner is not owner:
            raise InvalidInputError(f"{callee!r}: {spec.name!r} got a Stream {OF_ANOTHER}")
        if stream.is_closed:
            raise InvalidInputError(f"{callee!r}: {spec.name!r} got a Stream that was closed (`aclose`), and cannot be read")
        spec.check(stream.outputs, repr(callee))


def is_same_call(
    entry: Entry,
    callee: Program | Workflow,
    arguments: Sequence[Argument],
    statics: tuple[StaticValue, ...],
    streams: Sequence[Stream],
) -> bool:
    """Returns whether a call is the one that the journal has in its place."""
    if entry.streams or streams:
        mine = [stream.parts for stream in entry.streams]
        if len(mine) != len(streams) or any(a is not b.parts for a, b in zip(mine, streams, strict=True)):
            return False
    return (
        entry.callee is callee
        and same_statics(entry.statics, statics)
        and all(a.same_as(b) for a, b in zip(entry.arguments, arguments, strict=True))
    )


def difference_of(
    entry: Entry, callee: Program | Workflow, arguments: Sequence[Argument], statics: tuple[StaticValue, ...]
) -> str:
    """Says which arguments of a call are not those of the call in its place in the journal; empty if that calls something
    else."""
    if entry.callee is not callee:
        return ""
    signature = callee.signature
    inputs = zip(signature.inputs, entry.arguments, arguments, strict=True)
    others = zip(signature.statics, entry.statics, statics, strict=True)
    names = [spec.name for spec, a, b in inputs if not a.same_as(b)]
    names += [spec.name for spec, a, b in others if not same_statics((a,), (b,))]
    return f"; {', '.join(map(repr, names))} differed" if names else ""
