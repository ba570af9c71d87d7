"""What is to be scheduled: the blocks of one repetition, the resources that they need, and what has to come before what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dyorc.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuloBlock:
    """Work that takes its resources for itself for some time.

    Attributes:
        name: Unique in the problem.
        span: How long it takes.
        resources: What it needs all that time: devices, or links. Without any it is a pure delay.
        memory: By how much the memory in use of each of its resources grows when it starts.
        after: The blocks of the same repetition that must have ended before it starts.
    """

    name: str
    span: int
    resources: tuple[str, ...]
    memory: int = 0
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModuloProblem:
    """One repetition.

    Attributes:
        blocks: In topological order.
        capacities: The memory of each resource that has a limit.
        carried: Pairs of blocks: the second of each repetition waits for the first of the repetition before.
    """

    blocks: tuple[ModuloBlock, ...]
    capacities: Mapping[str, int] = field(default_factory=dict[str, int])
    carried: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for block in self.blocks:
            if block.name in seen:
                raise PlanError(f"two blocks are named {block.name}")
            if block.span < 0 or (block.resources and not block.span):
                raise PlanError(f"block {block.name} takes {block.span} units of time; on a resource it must take at least 1")
            if missing := [name for name in block.after if name not in seen]:
                raise PlanError(f"block {block.name} waits for {missing[0]}, which does not come before it")
            seen.add(block.name)
        if unknown := [name for pair in self.carried for name in pair if name not in seen]:
            raise PlanError(f"the next repetition waits for {unknown[0]}, and there is no such block")
        for resource in self.resources:
            if left := sum(block.memory for block in self.on(resource)):
                raise PlanError(f"each repetition leaves {left:+} units of memory on {resource}, and must leave none")

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """All resources, in the order in which blocks name them."""
        return tuple(dict.fromkeys(resource for block in self.blocks for resource in block.resources))

    @cached_property
    def by_name(self) -> Mapping[str, ModuloBlock]:
        """The blocks by name."""
        return {block.name: block for block in self.blocks}

    @cached_property
    def load(self) -> int:
        """How long the busiest resource works in each repetition: no period is shorter."""
        return max((sum(block.span for block in self.on(resource)) for resource in self.resources), default=1)

    @cached_property
    def pairs(self) -> Sequence[tuple[ModuloBlock, ModuloBlock]]:
        """The blocks that cannot run at the same time."""
        blocks = self.blocks
        return [(p, q) for at, p in enumerate(blocks) for q in blocks[at + 1 :] if not set(p.resources).isdisjoint(q.resources)]

    @cached_property
    def roots(self) -> Sequence[Sequence[str]]:
        """The blocks that wait for nothing, in groups that are independent of each other but for resources."""
        group = {block.name: {block.name} for block in self.blocks}
        for block in self.blocks:
            for name in (*block.after, *(first for first, second in self.carried if second == block.name)):
                if group[name] is not group[block.name]:
                    group[name] |= group[block.name]
                    group |= dict.fromkeys(group[block.name], group[name])
        groups = {id(names): names for names in group.values()}.values()
        return [[block.name for block in self.blocks if not block.after and block.name in names] for names in groups]

    def on(self, resource: str) -> list[ModuloBlock]:
        """The blocks that need a resource."""
        return [block for block in self.blocks if resource in block.resources]

    def with_capacity(self, units: int | None) -> "ModuloProblem":
        """The same with as much memory on every resource, or with no limit."""
        return replace(self, capacities={} if units is None else dict.fromkeys(self.resources, units))
