"""A step over several microbatches as one program, with gradients that are added up, or taken into Adam's averages at once.

AdamA (arXiv 2305.19982, ECAI 2023) is not Adam. With g_i the gradient of microbatch i, divided by their number N:

    mean    m = b1 m + (1 - b1) sum g_i           as Adam has it
    square  v = b2 v + (1 - b2) sum g_i ** 2      where Adam has (sum g_i) ** 2

So no gradient outlives its layer, and the second moment lacks the products of different microbatches. With one microbatch, or
with gradients that are independent and zero in the mean, the two agree; with equal ones v is N times smaller.
"""

from collections.abc import Callable
from dataclasses import replace

from dyorc.planner.program import TensorProgram, ValueKind
from dyorc.planner.program.graph import Phase
from dyorc.planner.program.update import adam_step
from dyorc.planner.program.writer import ProgramWriter

_Fold = Callable[[ProgramWriter, int, str, str], None]
"""What becomes of a gradient: writer, number of the microbatch, parameter, the gradient's value."""


def accumulate_microbatches(program: TensorProgram, num_parts: int) -> TensorProgram:
    """Returns a step over several microbatches that adds their gradients up, and has their mean loss.

    Args:
        program: A step over one microbatch, without the optimizer.
        num_parts: How many microbatches. Inputs are called `NAME.part0`, `NAME.part1`, ...
    """
    sums: dict[str, str] = {}

    def fold(writer: ProgramWriter, part: int, parameter: str, gradient: str) -> None:
        name = f"{parameter}.gradient"
        mean = writer.add(f"{name}.mean{part}", "mul.Tensor", parameter, gradient, 1.0 / num_parts)
        sums[parameter] = writer.add(f"{name}.sum{part}", "add.Tensor", parameter, sums[parameter], mean) if part else mean

    return replace(_in_parts(program, num_parts, fold).program(), gradients=sums)


def with_adama(
    program: TensorProgram,
    num_parts: int,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> TensorProgram:
    """Returns a step of AdamA over several microbatches.

    Its states are called as those of Adam (`with_update`). It has no gradients: each ends where its layer's is computed.

    Args:
        program: A step over one microbatch, without the optimizer.
        num_parts: How many microbatches. Inputs are called `NAME.part0`, `NAME.part1`, ...
        lr: Learning rate.
        betas: What is kept of the mean gradient and of its mean square.
        eps: What is added to the root of the mean square.
    """
    means: dict[str, str] = {}
    squares: dict[str, str] = {}

    def fold(writer: ProgramWriter, part: int, parameter: str, gradient: str) -> None:
        squared = writer.add(f"{parameter}.squared{part}", "mul.Tensor", parameter, gradient, gradient)
        for name, now, value, beta, share in (
            ("mean", means, gradient, betas[0], 1.0 / num_parts),
            ("square", squares, squared, betas[1], 1.0 / num_parts**2),
        ):
            if part == 0:
                state = writer.state(f"{parameter}.{name}", parameter)
                now[parameter] = writer.add(f"{state}.kept", "mul.Tensor", parameter, state, beta)
            added = writer.add(f"{parameter}.{name}.added{part}", "mul.Tensor", parameter, value, (1.0 - beta) * share)
            now[parameter] = writer.add(f"{parameter}.{name}.with{part}", "add.Tensor", parameter, now[parameter], added)

    writer = _in_parts(program, num_parts, fold)
    writer.phase = Phase.UPDATE
    step = adam_step(writer, lr, betas, eps)
    for parameter, gradient in program.gradients.items():
        writer.of(f"{gradient}.part0")
        writer.becomes(f"{parameter}.mean", means[parameter])
        writer.becomes(f"{parameter}.square", squares[parameter])
        step(parameter, means[parameter], squares[parameter])
    return writer.program()


def _in_parts(program: TensorProgram, num_parts: int, fold: _Fold) -> ProgramWriter:
    """Writes the microbatches one after another; each gradient is folded in right where it is computed."""
    lasting = {name: value for name, value in program.values.items() if value.kind not in (ValueKind.ACTIVATION, ValueKind.INPUT)}
    writer = ProgramWriter(replace(program, values=lasting, nodes=(), inputs=(), gradients={}, updates={}), Phase.BACKWARD)
    owners: dict[str, list[str]] = {}
    for parameter, gradient in program.gradients.items():
        owners.setdefault(program.producers[gradient].name, []).append(parameter)
    changed: dict[str, str] = {}
    losses: list[str] = []
    for part in range(num_parts):
        suffix = f".part{part}"
        names = {name: f"{name}{suffix}" for name in program.values if name not in lasting} | changed
        for name in program.inputs:
            writer.input(names[name], program.values[name])
        for node in program.nodes:
            writer.copy(node, program, names, suffix)
            for parameter in owners.get(node.name, ()):
                writer.of(names[program.gradients[parameter]])
                fold(writer, part, parameter, names[program.gradients[parameter]])
        changed |= {source: names[after] for source, after in program.updates.items()}
        losses.append(names[program.loss])
    for source, after in changed.items():
        writer.becomes(source, after)
    total = losses[0]
    for part, loss in enumerate(losses[1:], 1):
        total = writer.add(f"loss.sum{part}", "add.Tensor", losses[0], total, loss)
    writer.loss(writer.add("loss.mean", "mul.Tensor", losses[0], total, 1.0 / num_parts))
    return writer
