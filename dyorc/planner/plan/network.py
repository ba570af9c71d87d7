"""How much of a machine's way out each destination may use: the part of a plan that is about the network."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from dyorc.errors import PlanError

MachinePair: TypeAlias = tuple[str, str]
"""A machine that sends, and one that receives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What one machine may send to another through one of its interfaces.

    Attributes:
        source: The machine that sends.
        target: The one that receives.
        interface: The source's interface.
        bytes_per_s: What is reserved for it.
    """

    source: str
    target: str
    interface: str
    bytes_per_s: float

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0:
            raise PlanError(
                f"what {self.source} may send to {self.target} must be above 0 bytes a second, not {self.bytes_per_s}"
            )


@dataclass(frozen=True, kw_only=True)
class Network:
    """The limits of a plan.

    Attributes:
        limits: At most one for each source, target and interface. Between machines that are not named nothing is limited.
        is_strict: Whether a limit holds even while others leave their part unused. Otherwise unused bandwidth is lent, in the
            ratios of the limits.
    """

    limits: tuple[Limit, ...]
    is_strict: bool = True

    def __post_init__(self) -> None:
        names = [(limit.source, limit.target, limit.interface) for limit in self.limits]
        for name in names:
            if names.count(name) > 1:
                raise PlanError(f"there are several limits from {name[0]} to {name[1]} through {name[2]}")

    @cached_property
    def rates(self) -> Mapping[MachinePair, float]:
        """What is reserved for each pair of machines, through all interfaces together."""
        rates: dict[MachinePair, float] = {}
        for limit in self.limits:
            pair = limit.source, limit.target
            rates[pair] = rates.get(pair, 0.0) + limit.bytes_per_s
        return rates

    def of_source(self, machine: str) -> Iterator[Limit]:
        """Yields the limits of one machine's way out."""
        return (limit for limit in self.limits if limit.source == machine)
