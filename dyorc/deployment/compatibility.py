"""Whether a version of a model can answer the requests that were written for another version."""

import inspect
from collections.abc import Sequence

from dyorc.authoring.signature import Signature
from dyorc.authoring.spec import TensorSpec
from dyorc.models.offers import OfferedWorkflow


def incompatibility(old: OfferedWorkflow, new: OfferedWorkflow) -> str:
    """Returns why a version cannot answer another version's clients; empty if it can. Additional parameters with defaults, and
    names of dimensions, do not matter."""
    if old.is_streaming is not new.is_streaming:
        return "one answers in parts, the other does not"
    before, after = old.signature, new.signature
    return (
        _difference_of_tensors("input", before.inputs, after.inputs)
        or _difference_of_tensors("output", before.outputs.tensors, after.outputs.tensors)
        or _difference_of_statics(before, after)
    )


def _difference_of_tensors(kind: str, before: Sequence[TensorSpec], after: Sequence[TensorSpec]) -> str:
    old, new = ([f"{spec.name}: {spec.dtype} {spec.wire_shape}" for spec in specs] for specs in (before, after))
    return "" if sorted(old) == sorted(new) else f"its {kind}s are {', '.join(new) or 'none'}, not {', '.join(old) or 'none'}"


def _difference_of_statics(before: Signature, after: Signature) -> str:
    known = {static.name: static for static in after.statics}
    for static in before.statics:
        if static.name not in known or known[static.name].type is not static.type:
            return f"it has no parameter {static.name!r} of type {static.type.__name__}"
    names = {static.name for static in before.statics}
    needed = [static.name for static in after.statics if static.name not in names and static.default is inspect.Parameter.empty]
    return f"it needs a parameter {needed[0]!r}" if needed else ""
