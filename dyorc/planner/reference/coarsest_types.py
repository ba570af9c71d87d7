"""Which types the elements of a value passed through: a result in float32 is no better than the bfloat16 that it was made of."""

from dyorc.planner.program.graph import TensorProgram, ValueKind
from dyorc.planner.reference.tolerance import TOLERANCES


def coarsest_types(program: TensorProgram) -> dict[str, str]:
    """Returns for each value of a program, by name, the type with the widest tolerance among all that it depends on."""
    coarsest = {name: value.dtype for name, value in program.values.items() if value.kind is not ValueKind.ACTIVATION}
    for node in program.nodes:
        read = [coarsest[name] for name in node.inputs]
        for output in filter(None, node.outputs):
            coarsest[output] = max([program.values[output].dtype, *read], key=lambda dtype: TOLERANCES.get(dtype, 0.0))
    return coarsest
