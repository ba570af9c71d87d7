"""Makes a module draw counter-based random numbers, while it is captured and when it runs on one device."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from dyorc.planner.program.randomness.distributions import DISTRIBUTIONS, Target, rrelu_noise


class UncountableError(TypeError):
    """An operation draws random numbers that are no function of a counter; the text says which, and why."""


class CounterBased(TorchDispatchMode):
    """Replaces torch's random operations by functions of the step, the number of the draw, and the position of the element.

    A module that runs in it draws what each plan of its program draws in that step:

        with CounterBased(step=0):
            loss = module(*inputs)
        loss.backward()

    Torch's generators are neither read nor changed. Attention with dropout is computed by torch's formula. Each entry counts
    draws from 0. Not for several threads.

    Args:
        step: How many steps came before, or an int64 scalar tensor of that; a program has it as its state `random.step`. Numbers
            from `seed << 32` on are another sequence.

    Attributes:
        num_draws: How many tensors of uniform numbers were drawn since the last entry.

    Raises:
        UncountableError: From the operation, if what it draws is no function of a counter.
    """

    def __init__(self, step: int | torch.Tensor = 0) -> None:
        super().__init__()
        self._step = step
        self._entered = ExitStack()
        self.num_draws = 0

    def __enter__(self) -> "CounterBased":
        self.num_draws = 0
        self._entered.enter_context(sdpa_kernel(SDPBackend.MATH))  # other kernels have generators of their own
        return super().__enter__()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        super().__exit__(kind, error, traceback)
        self._entered.close()

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for each of its operations."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        arguments = arguments_of(func, args, kwargs)
        if not draws(func, arguments):
            return func(*args, **kwargs)
        if arguments.get("generator") is not None:
            raise UncountableError(f"{func} draws from its own generator, whose state no plan has; leave it out")
        if torch._C._current_graph_task_id() != -1:  # pyright: ignore[reportPrivateUsage]  # no public name says where it is
            raise UncountableError(
                f"{func} draws random numbers in the backward pass, which would not be those of forward; keep activations there "
                "instead of computing them again (checkpoint)"
            )
        try:
            return self._replaced(func, arguments)
        except ValueError as error:
            raise UncountableError(f"{func}: {error}") from error

    def _replaced(self, func: Any, arguments: Mapping[str, Any]) -> Any:
        name = str(func).split(".")[1]
        match name:
            case "native_dropout":
                return self._dropout(arguments["input"], arguments["p"])
            case "rrelu_with_noise" | "rrelu_with_noise_" | "rrelu_with_noise_functional":
                return self._rrelu(name, arguments)
            case _:
                distribution = DISTRIBUTIONS.get(name.removesuffix("_"))
        if distribution is None:
            raise UncountableError(
                f"{func} draws as many random numbers as it needs, so ranks could not draw what one device draws; use "
                "operations that draw one number for each element, such as torch.rand or torch.bernoulli"
            )
        target = _target(arguments)
        result = distribution(self._uniform, target, arguments)
        result = result if name == "multinomial" else result.to(target.dtype)
        if (out := arguments.get("out")) is not None:
            return out.copy_(result)
        return arguments["self"].copy_(result) if name.endswith("_") else result

    def _dropout(self, tensor: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
        mask = self._uniform(tensor.shape, torch.float32, tensor.device) < 1.0 - p
        return tensor * mask * (0.0 if p == 1 else 1.0 / (1.0 - p)), mask

    def _rrelu(self, name: str, arguments: Mapping[str, Any]) -> Any:
        tensor, noise = arguments["self"], arguments["noise"]
        slopes = rrelu_noise(self._uniform, _target(arguments), arguments)
        if name == "rrelu_with_noise_functional":
            return tensor * slopes, slopes
        noise.copy_(slopes)
        return tensor.mul_(slopes) if name.endswith("_") else tensor * slopes

    def _uniform(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        step = self._step if isinstance(self._step, torch.Tensor) else torch.full((), self._step, dtype=torch.int64)
        draw, whole = self.num_draws, list(shape)
        self.num_draws += 1
        return torch.ops.dyorc.philox_uniform(step.to(device), draw, whole, [0] * len(whole), whole, dtype)


class WithoutRandomness(TorchDispatchMode):
    """Refuses random operations, for a module whose answers must depend on its inputs alone.

    Attributes:
        num_draws: None.
    """

    num_draws = 0

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for each of its operations."""
        if draws(func, arguments_of(func, args, kwargs or {})):
            raise UncountableError(f"{func} draws random numbers, so that the same inputs would not have the same answers")
        return func(*args, **(kwargs or {}))


def draws(func: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether an operation draws random numbers, called like this: attention and recurrent layers may do without dropout."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    is_off = any(arguments.get(name) == 0 for name in ("dropout_p", "dropout"))
    return not is_off and not any(arguments.get(name) is False for name in ("train", "training"))


def arguments_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of an operation by the names in its schema, defaults included."""
    arguments: dict[str, Any] = {}
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        arguments[argument.name] = argument.default_value if value is None and argument.has_default_value() else value
    return arguments


def _target(arguments: Mapping[str, Any]) -> Target:
    like = [value for name in ("self", "mean", "std") if isinstance(value := arguments.get(name), torch.Tensor)]
    if "n" in arguments:
        shape: Sequence[int] = (arguments["n"],)
    else:
        shape = arguments.get("size") or torch.broadcast_shapes(*(tensor.shape for tensor in like))
    dtype = arguments.get("dtype")
    if not isinstance(dtype, torch.dtype):  # a default is torch's number of the type: of integers
        dtype = torch.int64 if dtype is not None else like[0].dtype if like else torch.get_default_dtype()
    device = arguments.get("device")
    device = like[0].device if like and device is None else torch.device(device or torch.get_default_device())
    return Target(tuple(shape), dtype, device)
