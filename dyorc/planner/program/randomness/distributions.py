"""Torch's random operations as functions of uniform random numbers.

Each takes as many uniform numbers as its result has elements, or twice as many: what draws until a number fits, such as
`poisson`, is no such function.

Source: Devroye, "Non-Uniform Random Variate Generation" (1986): inversion (chapter II.2) for `exponential`, `geometric` and
`cauchy`, the polar form of Box and Muller for `normal`, the race of exponentials for `multinomial`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import pi
from typing import Any, Protocol, TypeAlias, cast

import torch


@dataclass(frozen=True, slots=True)
class Target:
    """What a random operation fills.

    Attributes:
        shape: Its extents.
        dtype: Its type.
        device: Where it lies.
    """

    shape: Sequence[int]
    dtype: torch.dtype
    device: torch.device


class Uniform(Protocol):
    """Draws uniform numbers in [0, 1), others with each call."""

    def __call__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Returns numbers of type float32 or float64."""
        ...


Arguments: TypeAlias = Mapping[str, Any]
"""The arguments of an operation by the names in its schema, defaults included."""
Distribution: TypeAlias = Callable[[Uniform, Target, Arguments], torch.Tensor]
"""Computes what an operation returns, or what it fills its first argument with."""

_NUM_BITS = {torch.float16: 11, torch.bfloat16: 8}
"""Of the types whose rounding would make 1 of numbers just below."""
_MOST_INTEGERS = 1 << 53


def _in_unit(draw: Uniform, target: Target) -> torch.Tensor:
    """Uniform numbers in [0, 1), also once they are of the target's type."""
    numbers = draw(target.shape, _wide(target.dtype), target.device)
    bits = _NUM_BITS.get(target.dtype)
    return numbers if bits is None else torch.floor(numbers * 2**bits) * 2.0**-bits


def _wide(dtype: torch.dtype) -> torch.dtype:
    if not dtype.is_floating_point:
        raise ValueError(f"random numbers of type {dtype} are not supported here; draw floating-point numbers and convert them")
    return torch.float64 if dtype == torch.float64 else torch.float32


def _uniform(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    low, high = arguments.get("from", 0.0), arguments.get("to", 1.0)
    numbers = _in_unit(draw, target)
    return numbers if (low, high) == (0, 1) else numbers * (high - low) + low


def _bernoulli(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    """Of 24 bits for every type, so that a module drops the same in float32 as in float64."""
    return draw(target.shape, torch.float32, target.device) < arguments.get("p", arguments["self"])


def _standard_normal(draw: Uniform, target: Target) -> torch.Tensor:
    dtype = _wide(target.dtype)
    radius = torch.sqrt(-2.0 * torch.log1p(-draw(target.shape, dtype, target.device)))
    return radius * torch.cos(2.0 * pi * draw(target.shape, dtype, target.device))


def _normal(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    numbers, mean, std = _standard_normal(draw, target), arguments.get("mean", 0.0), arguments.get("std", 1.0)
    numbers = numbers if _is_number(std, 1) else numbers * std
    return numbers if _is_number(mean, 0) else numbers + mean


def _is_number(argument: object, number: float) -> bool:
    return isinstance(argument, int | float) and argument == number


def _log_normal(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    return torch.exp(_normal(draw, target, arguments))


def _exponential(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    return torch.log1p(-draw(target.shape, _wide(target.dtype), target.device)) / -arguments.get("lambd", 1.0)


def _geometric(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    numbers = draw(target.shape, torch.float64 if target.dtype == torch.float64 else torch.float32, target.device)
    log_failure = torch.log1p(torch.full((), -arguments["p"], dtype=numbers.dtype, device=target.device))
    return torch.clamp_min(torch.ceil(torch.log1p(-numbers) / log_failure), 1.0)


def _cauchy(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    angle = pi * (draw(target.shape, _wide(target.dtype), target.device) - 0.5)
    return torch.tan(angle) * arguments["sigma"] + arguments["median"]


def _integers(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    """As many numbers as float64 counts: 2 ** 53 at most."""
    low, high = arguments.get("low", arguments.get("from")) or 0, arguments.get("high", arguments.get("to"))
    if high is None or isinstance(high, torch.Tensor) or high - low > _MOST_INTEGERS:
        raise ValueError("random integers need bounds that are numbers, at most 2 ** 53 apart")
    numbers = torch.floor(draw(target.shape, torch.float64, target.device) * (high - low))
    return numbers if low == 0 else numbers + low


def _permutation(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    return torch.argsort(draw(target.shape, torch.float64, target.device), stable=True)


def _multinomial(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    """Who comes first, if each waits an exponential time, has a chance in proportion to its rate."""
    weights, number = cast(torch.Tensor, arguments["self"]), cast(int, arguments["num_samples"])
    if arguments["replacement"] and number > 1:
        weights = weights.unsqueeze(-2).expand(*weights.shape[:-1], number, weights.shape[-1])
        return torch.argmax(_races(draw, weights), -1)
    races = _races(draw, weights)
    return torch.argmax(races, -1, keepdim=True) if number == 1 else torch.topk(races, number, -1)[1]


def _races(draw: Uniform, weights: torch.Tensor) -> torch.Tensor:
    waits = -torch.log1p(-draw(weights.shape, _wide(weights.dtype), weights.device))
    least = torch.finfo(waits.dtype).tiny  # a wait of 0 would have a weight of 0 win
    return weights / torch.clamp_min(waits, least)


def _slopes(draw: Uniform, target: Target, arguments: Arguments) -> torch.Tensor:
    """The noise of `rrelu`: what negative elements are multiplied with, and 1 for the others."""
    low, high = float(arguments["lower"]), float(arguments["upper"])
    slopes = draw(target.shape, _wide(target.dtype), target.device) * (high - low) + low
    return torch.where(arguments["self"] <= 0, slopes.to(target.dtype), 1.0)


DISTRIBUTIONS: Mapping[str, Distribution] = {
    "bernoulli": _bernoulli,
    "cauchy": _cauchy,
    "exponential": _exponential,
    "geometric": _geometric,
    "log_normal": _log_normal,
    "multinomial": _multinomial,
    "normal": _normal,
    "rand": _uniform,
    "rand_like": _uniform,
    "randint": _integers,
    "randint_like": _integers,
    "randn": _normal,
    "randn_like": _normal,
    "random": _integers,
    "randperm": _permutation,
    "uniform": _uniform,
}
"""By the operation's name, without the underscore of in-place operations."""
rrelu_noise: Distribution = _slopes
