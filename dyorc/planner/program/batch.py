"""Which dimensions of a program grow with the number of samples in a batch, and the same program for another number.

The program is captured for two numbers of samples. Both must be the same except for extents, and an extent that differs must be a
multiple of the number of samples. A constant that differs, such as the size of the batch in a mean over it, is refused: answers
would depend on what else is in the batch.
"""

from collections.abc import Mapping
from dataclasses import replace

from dyorc.errors import ProgramCaptureError
from dyorc.planner.program.graph import Node, TensorProgram, Value


def batch_dims_of(program: TensorProgram, more: TensorProgram, num_samples: int) -> Mapping[str, tuple[int, ...]]:
    """Returns for each value that grows with the batch the dimensions that do.

    Args:
        program: For a number of samples.
        more: The same for one sample more.
        num_samples: That number.

    Raises:
        ProgramCaptureError: The two differ in more than that, or an answer has its samples elsewhere than along its first
            dimension.
    """
    if len(program.nodes) != len(more.nodes) or program.outputs != more.outputs:
        raise ProgramCaptureError(
            f"{program.name} does {len(program.nodes)} operations for {num_samples} samples and {len(more.nodes)} for one more"
        )
    for node, other in zip(program.nodes, more.nodes, strict=True):
        if _signature_of(node) != _signature_of(other):
            raise ProgramCaptureError(
                f"{program.name}: {node.op} of {node.name} depends on the number of samples, so answers would depend "
                "on what else is in a batch"
            )
    dims_of = {name: _growing(program.name, value, more.values[name], num_samples) for name, value in program.values.items()}
    for name in (*program.inputs, *program.outputs):
        if dims_of[name] != (0,):
            raise ProgramCaptureError(
                f"{program.name} must take and return samples along the first dimension; {name} of shape "
                f"{list(program.values[name].shape)} has them along {list(dims_of[name]) or 'none'}"
            )
    return {name: dims for name, dims in dims_of.items() if dims}


def _signature_of(node: Node) -> tuple[object, ...]:
    return node.name, node.op, repr(node.arguments), repr(node.keywords), node.outputs  # repr: NaN equals nothing, and 1 is True


def _growing(program: str, value: Value, more: Value, num_samples: int) -> tuple[int, ...]:
    dims: list[int] = []
    for dim, (extent, larger) in enumerate(zip(value.shape, more.shape, strict=True)):
        if extent == larger:
            continue
        if extent * (num_samples + 1) != larger * num_samples:
            raise ProgramCaptureError(
                f"{program}: dimension {dim} of {value.name} has {extent} elements for {num_samples} samples and {larger} for "
                "one more, which is not so many for each"
            )
        dims.append(dim)
    return tuple(dims)


def resize(value: Value, dims: tuple[int, ...], num_samples: int, before: int) -> Value:
    """Returns a value for another number of samples.

    Args:
        value: The value.
        dims: The dimensions that grow with the batch.
        num_samples: How many there are to be.
        before: How many there are.
    """
    shape = tuple(extent // before * num_samples if dim in dims else extent for dim, extent in enumerate(value.shape))
    return replace(value, shape=shape) if dims else value


def with_samples(program: TensorProgram, num_samples: int) -> TensorProgram:
    """Returns a program that answers for another number of samples."""
    before = program.values[program.inputs[0]].shape[0]
    values = {
        name: resize(value, program.batch_dims.get(name, ()), num_samples, before) for name, value in program.values.items()
    }
    return replace(program, values=values)
