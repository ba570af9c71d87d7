"""A pipeline's stages as blocks of one microbatch: how long the pass of each stage takes, what it keeps, and what it sends."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.planners.baselines.assemble import Stages
from dyorc.planner.planners.baselines.follow import Choices
from dyorc.planner.planners.baselines.pipeline import StagePass
from dyorc.planner.planners.modulo.modulo_blocks import ModuloBlock, ModuloProblem
from dyorc.planner.program import Node, ValueKind
from dyorc.planner.program.costs import costs_of
from dyorc.planner.program.graph import Phase

_RESOLUTION = 24
"""Units of time that the longest pass takes: the fewer, the faster the search, and the coarser."""
_MAX_TRANSFER = 240
"""Units of time that the longest transfer takes at most, if transfers take much longer than passes."""

_Pass = tuple[int, bool]
"""A stage, and whether it goes forward."""


@dataclass(frozen=True)
class Passes:
    """The passes of all stages over one microbatch.

    Attributes:
        choices: The program.
        stages: Its stages.
        num_parts: How many microbatches there are.
        cluster: Where it runs.
    """

    choices: Choices
    stages: Stages
    num_parts: int
    cluster: Cluster

    @cached_property
    def nodes(self) -> Mapping[_Pass, list[Node]]:
        """What each pass computes; forward passes first, in the order of stages, then backward passes, the last stage first."""
        nodes_of: dict[_Pass, list[Node]] = {}
        for node in self.choices.program.nodes:
            if node.phase is not Phase.UPDATE:
                for stage in self.stages.of_node[node.name]:
                    nodes_of.setdefault((stage, node.phase is Phase.FORWARD), []).append(node)
        return dict(sorted(nodes_of.items(), key=lambda entry: (not entry[0][1], entry[0][0] if entry[0][1] else -entry[0][0])))

    def problem(self) -> ModuloProblem:
        """Returns the passes as blocks on ranks, and what passes between them as blocks on links, in whole units of time.

        Raises:
            PlanError: A stage waits for a later one.
        """
        unit_s = max(max(self._seconds.values()) / _RESOLUTION, self._longest_transfer_s / _MAX_TRANSFER)
        unit_bytes = max(1, max(self._kept_bytes.values(), default=1) >> 20)
        blocks: list[ModuloBlock] = []
        for stage_pass in self.nodes:
            after: list[str] = []
            for before, num_bytes in self._needs[stage_pass].items():
                if before not in self.nodes or name_of(before) not in {block.name for block in blocks}:
                    raise PlanError(f"{name_of(stage_pass)} waits for {name_of(before)}, so that these stages are no pipeline")
                after.append(name_of(before))
                if transfer := self._transfer(before, stage_pass, num_bytes, unit_s):
                    blocks.append(transfer)
                    after[-1] = transfer.name
            kept = -(-self._kept_bytes.get(stage_pass[0], 0) // unit_bytes) if (stage_pass[0], False) in self.nodes else 0
            blocks.append(
                ModuloBlock(
                    name=name_of(stage_pass),
                    span=max(1, round(self._seconds[stage_pass] / unit_s)),
                    resources=tuple(_device(rank) for rank in self.stages.ranks[stage_pass[0]]),
                    memory=kept if stage_pass[1] else -kept,
                    after=tuple(after),
                )
            )
        room = {_device(rank): room_bytes // unit_bytes for rank, room_bytes in self._room_bytes.items()}
        return ModuloProblem(tuple(blocks), room)

    def turns(self) -> Mapping[str, StagePass]:
        """The stage pass of each block's name, of the first microbatch."""
        return {name_of(stage_pass): StagePass(*stage_pass, 0) for stage_pass in self.nodes}

    @cached_property
    def _seconds(self) -> Mapping[_Pass, float]:
        costs = costs_of(self.choices.program)
        seconds: dict[_Pass, float] = {}
        for (stage, is_forward), nodes in self.nodes.items():
            ranks = self.stages.ranks[stage]
            share = 1.0 / (self.num_parts * len(ranks))
            seconds[stage, is_forward] = max(sum(self.cluster.compute_s(costs[n.name], r, share) for n in nodes) for r in ranks)
        return seconds

    @cached_property
    def _needs(self) -> Mapping[_Pass, Mapping[_Pass, int]]:
        """For each pass, the passes that it waits for, and the bytes that it gets from them."""
        program, needs = self.choices.program, dict[_Pass, dict[_Pass, int]]()
        of_value = {
            name: stage_pass
            for stage_pass, nodes in reversed(list(self.nodes.items()))
            for node in nodes
            for name in node.outputs
            if name
        }
        for stage_pass, nodes in self.nodes.items():
            own = {name for node in nodes for name in node.outputs}
            needed = dict.fromkeys(name for node in nodes for name in node.inputs if name not in own and name in of_value)
            needs[stage_pass] = {}
            for name in needed:
                before = next((b for b in (stage_pass, (stage_pass[0], True)) if self._makes(b, name)), of_value[name])
                num_bytes = 0 if before[0] == stage_pass[0] else program.values[name].num_bytes // self.num_parts
                needs[stage_pass][before] = needs[stage_pass].get(before, 0) + num_bytes
        return needs

    def _makes(self, stage_pass: _Pass, name: str) -> bool:
        return self.choices.program.producers[name].name in {node.name for node in self.nodes.get(stage_pass, ())}

    def _transfer(self, before: _Pass, after: _Pass, num_bytes: int, unit_s: float) -> ModuloBlock | None:
        """What passes between two stages: on its own link if they share no rank, otherwise only a delay."""
        span = round(self._transfer_s(before, after, num_bytes) / unit_s)
        if not span:
            return None
        senders, receivers = self.stages.ranks[before[0]], self.stages.ranks[after[0]]
        is_apart = set(senders).isdisjoint(receivers)
        links = tuple(f"{_device(sender)} -> {_device(receiver)}" for sender, receiver in zip(senders, receivers, strict=False))
        name = f"{name_of(before)} to {name_of(after)}"
        return ModuloBlock(name=name, span=span, resources=links if is_apart else (), after=(name_of(before),))

    def _transfer_s(self, before: _Pass, after: _Pass, num_bytes: int) -> float:
        senders, receivers = self.stages.ranks[before[0]], self.stages.ranks[after[0]]
        if before[0] == after[0] or not num_bytes:
            return 0.0
        pairs = [(sender, receiver) for sender, receiver in zip(senders, receivers, strict=False) if sender != receiver]
        return max((self.cluster.transfer_s(*pair, num_bytes // len(senders)) for pair in pairs), default=0.0)

    @cached_property
    def _longest_transfer_s(self) -> float:
        return max(
            self._transfer_s(before, after, size) for after, needs in self._needs.items() for before, size in needs.items()
        )

    @cached_property
    def _kept_bytes(self) -> Mapping[int, int]:
        """What each stage's forward pass keeps for its backward pass, on each rank, for one microbatch."""
        program, kept_bytes = self.choices.program, dict[int, int]()
        for (stage, is_forward), nodes in self.nodes.items():
            if is_forward:
                later = {name for node in self.nodes.get((stage, False), ()) for name in node.inputs}
                kept = [name for node in nodes for name in node.outputs if name in later]
                total = sum(program.values[name].num_bytes for name in kept)
                kept_bytes[stage] = -(-total // (self.num_parts * len(self.stages.ranks[stage])))
        return kept_bytes

    @cached_property
    def _room_bytes(self) -> Mapping[int, int]:
        """What each rank has left for activations: parameters, states and gradients are there all the time."""
        program = self.choices.program
        left = {rank: device.memory_bytes for rank, device in enumerate(self.cluster.devices)}
        for name in program.sources:
            if program.values[name].kind is not ValueKind.INPUT:
                copies = 2 if name in program.gradients else 1
                for stage in self.stages.of_source[name]:
                    for rank in self.stages.ranks[stage]:
                        left[rank] -= copies * program.values[name].num_bytes // len(self.stages.ranks[stage])
        return {rank: max(room, 0) for rank, room in left.items()}


def name_of(stage_pass: _Pass) -> str:
    """The name of a pass, as plans show it."""
    return f"{'forward' if stage_pass[1] else 'backward'} {stage_pass[0]}"


def _device(rank: int) -> str:
    return f"rank {rank}"
