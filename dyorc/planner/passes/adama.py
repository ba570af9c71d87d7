"""A step over several microbatches, with gradients that are added up, or taken into Adam's averages at once: as one program, and
as an optimizer for a training loop in torch.

AdamA (arXiv 2305.19982, ECAI 2023) is not Adam. With g_i the gradient of microbatch i, divided by their number N:

    mean    m = b1 m + (1 - b1) sum g_i           as Adam has it
    square  v = b2 v + (1 - b2) sum g_i ** 2      where Adam has (sum g_i) ** 2

So no gradient outlives its layer, and the second moment lacks the products of different microbatches. With one microbatch, or
with gradients that are independent and zero in the mean, the two agree; with equal ones v is N times smaller.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

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


class AdamA(torch.optim.Optimizer):
    """Adam accumulation (arXiv 2305.19982): call `backward` for each microbatch, then `step`. There is no `zero_grad` to call.

    The loss of each microbatch must be divided by their number, as for gradients that are added up. Not Adam: see
    above. What needs the whole gradient, like clipping its norm, is impossible.

    With a process group, each rank has its own microbatches, and the averages are reduced once for each step: twice the bytes
    of the parameters, however many microbatches there are. The result is that of one process with all microbatches.

    Args:
        params: Leaf tensors, each in one optimizer only.
        lr: Learning rate.
        betas: What is kept of the mean gradient and of its mean square.
        eps: What is added to the root of the mean square.
        weight_decay: By which part of `lr` parameters shrink at each step, as in AdamW.
        group: Ranks that train together; None if there is one.

    Raises:
        ValueError: A parameter needs no gradient.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        for settings in self.param_groups:
            for parameter in settings["params"]:
                if not parameter.requires_grad:
                    raise ValueError(f"a parameter of shape {tuple(parameter.shape)} needs no gradient, and cannot be trained")
        self._averages = [_Averages(self.state, settings, group) for settings in self.param_groups]
        self._hooks = [hook for averages in self._averages for hook in averages.hooks()]

    def close(self) -> None:
        """Takes the hooks off the parameters."""
        for hook in self._hooks:
            hook.remove()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from what `state_dict` returned."""
        super().load_state_dict(state_dict)
        for averages, settings in zip(self._averages, self.param_groups, strict=True):
            averages.go_on_from(self.state, settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Changes the parameters by what the microbatches since the last step have left in the averages."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for averages in self._averages:
            averages.step()
        return loss


@dataclass(slots=True)
class _TrainedParameter:
    """A parameter, and what there is for it; looked up once, since a tensor is slow to find in a dictionary."""

    parameter: torch.nn.Parameter
    state: dict[str, Any]
    num_bytes: int
    has_begun: bool = False  # whether it has had a gradient since the last step


class _Averages:
    """The averages of parameters that have one setting.

    Gradients wait until they are as large as the largest parameter, or until the backward pass ends: so that one call takes in
    those of a layer, and no more of them is ever there than of two.
    """

    def __init__(self, states: dict[torch.Tensor, Any], settings: dict[str, Any], group: dist.ProcessGroup | None) -> None:
        self._settings = settings
        self._group = group
        self._num_ranks = dist.get_world_size(group) if group is not None else 1
        self._all = [_TrainedParameter(parameter, states[parameter], parameter.nbytes) for parameter in settings["params"]]
        self._max_bytes = max(trained.num_bytes for trained in self._all)
        self._waiting: list[_TrainedParameter] = []
        self._num_bytes = 0

    def go_on_from(self, states: dict[torch.Tensor, Any], settings: dict[str, Any]) -> None:
        """Replaces averages and settings."""
        self._settings = settings
        for trained in self._all:
            trained.state = states[trained.parameter]

    def hooks(self) -> Iterator[Any]:
        """Registers a hook on each parameter for the arrival of its gradient."""
        for trained in self._all:
            yield trained.parameter.register_post_accumulate_grad_hook(partial(self._on_gradient, trained))

    def _on_gradient(self, trained: _TrainedParameter, _: torch.Tensor) -> None:
        """Called for each gradient, so it does little."""
        if not self._waiting:
            _engine.queue_callback(self._take)
        self._waiting.append(trained)
        self._num_bytes += trained.num_bytes
        if self._num_bytes >= self._max_bytes:
            self._take()

    def _take(self) -> None:
        """Adds the waiting gradients to the averages, and frees them."""
        waiting, self._waiting, self._num_bytes = self._waiting, [], 0
        if not waiting:
            return
        with torch.no_grad():
            self._begin([trained for trained in waiting if not trained.has_begun])
            gradients = [trained.parameter.grad for trained in waiting]
            mean_beta, square_beta = self._settings["betas"]
            _torch._foreach_add_([trained.state["mean"] for trained in waiting], gradients, alpha=1.0 - mean_beta)
            _torch._foreach_addcmul_(
                [trained.state["square"] for trained in waiting], gradients, gradients, value=1.0 - square_beta
            )
        for trained in waiting:
            trained.parameter.grad = None

    def _begin(self, beginning: Sequence[_TrainedParameter]) -> None:
        """Begins a step of parameters whose first gradient has come."""
        if not beginning:
            return
        for trained in beginning:
            if not trained.state:
                zeros = torch.zeros_like
                trained.state |= {"step": 0, "mean": zeros(trained.parameter), "square": zeros(trained.parameter)}
            trained.state["step"] += 1
            trained.has_begun = True
        mean_beta, square_beta = self._settings["betas"]
        _torch._foreach_mul_([trained.state["mean"] for trained in beginning], mean_beta)
        # Every rank has the same square to begin with, and what they have in the end is divided by their number squared.
        _torch._foreach_mul_([trained.state["square"] for trained in beginning], square_beta * self._num_ranks)

    def step(self) -> None:
        """Changes the parameters."""
        if self._group is not None:  # other ranks may have had gradients for them
            self._begin([trained for trained in self._all if not trained.has_begun])
        for alike in self._alike():
            means, squares = [trained.state["mean"] for trained in alike], [trained.state["square"] for trained in alike]
            if self._group is not None:
                self._reduce(means, self._num_ranks)
                self._reduce(squares, self._num_ranks**2)
            self._change([trained.parameter for trained in alike], means, squares, alike[0].state["step"])
        for trained in self._all:
            trained.has_begun = False

    def _change(
        self, parameters: list[torch.nn.Parameter], means: list[torch.Tensor], squares: list[torch.Tensor], step: int
    ) -> None:
        settings = self._settings
        mean_share, square_share = (1.0 - beta**step for beta in settings["betas"])
        below = _torch._foreach_sqrt(squares)
        _torch._foreach_add_(below, settings["eps"] * square_share**0.5)
        if settings["weight_decay"]:
            _torch._foreach_mul_(parameters, 1.0 - settings["lr"] * settings["weight_decay"])
        _torch._foreach_addcdiv_(parameters, means, below, value=-settings["lr"] * square_share**0.5 / mean_share)

    def _reduce(self, averages: list[torch.Tensor], divisor: int) -> None:
        """Adds up what ranks have, of several averages at once."""
        flat = torch.cat([average.view(-1) for average in averages])
        dist.all_reduce(flat, group=self._group)
        parts = flat.div_(divisor).split([average.numel() for average in averages])
        _torch._foreach_copy_(averages, [part.view_as(average) for part, average in zip(parts, averages, strict=True)])

    def _alike(self) -> Iterator[list[_TrainedParameter]]:
        """Yields what changes in this step: of as many steps, and no more at a time than the largest has bytes, or one."""
        group: list[_TrainedParameter] = []
        num_bytes, key = 0, None
        for trained in self._all:
            if not trained.has_begun:
                continue
            own = (trained.state["step"], trained.parameter.dtype, trained.parameter.device)
            if group and (own != key or num_bytes + trained.num_bytes > self._max_bytes):
                yield group
                group, num_bytes = [], 0
            group.append(trained)
            num_bytes, key = num_bytes + trained.num_bytes, own
        if group:
            yield group


_torch: Any = torch  # what works on lists of tensors has an underscore, and is what torch's own optimizers use
_engine: Any = torch.autograd.Variable._execution_engine  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
