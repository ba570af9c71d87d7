"""Which outputs of a program are cut back to the size that a call had before it was padded."""

from collections.abc import Mapping, Sequence

from dyorc.authoring.program import Program


def padding_cuts(program: Program) -> Mapping[str, Sequence[tuple[int, int, int]]]:
    """Returns for each output with padded dimensions: its axis, and the input and axis whose size it follows."""
    padding, signature = program.options.pad, program.signature
    sources = {
        dim.name: (at, axis)
        for at, spec in enumerate(signature.inputs)
        for axis, dim in enumerate(spec.dims)
        if padding and dim.name in padding.buckets
    }
    return {
        spec.name: [(axis, *sources[dim.name]) for axis, dim in enumerate(spec.dims) if dim.name in sources]
        for spec in signature.outputs.tensors
    }
