"""Builds the plan of a schedule: each operation on the mesh of one rank, values sent when the schedule sends them."""

from collections.abc import Iterator

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder, Provenance, communicate_early
from dyorc.planner.planners.joint.heuristics import PlacedSchedule
from dyorc.planner.planners.joint.list_schedule import ScheduledTransfer
from dyorc.planner.planners.joint.work_graph import WorkGraph
from dyorc.planner.planners.operation_graphs import is_owned
from dyorc.planner.program import REPLICATE, Axes, Node, Strategy, TensorProgram


def build_plan(
    program: TensorProgram,
    cluster: Cluster,
    work: WorkGraph,
    placed: PlacedSchedule,
    axes: Axes | None = None,
) -> Plan:
    """Builds the plan.

    Args:
        program: What is planned.
        cluster: Where.
        work: The items.
        placed: Where they run, and when.
        axes: The program's, if they are known.
    """
    return _PlanWriter(program, cluster, work, placed, axes).plan()


class _PlanWriter:
    def __init__(
        self, program: TensorProgram, cluster: Cluster, work: WorkGraph, placed: PlacedSchedule, axes: Axes | None
    ) -> None:
        self._program = program
        self._cluster = cluster
        self._work = work
        self._schedule = placed.schedule
        self._builder = PlanBuilder(program, axes)
        self._meshes: dict[int, str] = {}
        self._rank_of = {name: placed.placement[item.home] for item in work.items for name in item.nodes}
        self._held: dict[tuple[str, int], str] = {}  # value, rank -> placed tensor
        self._of_node: set[tuple[str, int]] = set()

    def plan(self) -> Plan:
        for step in self._events():
            if isinstance(step, ScheduledTransfer):
                self._send(step)
            else:
                for name in self._work.items[step].nodes:
                    self._apply(self._program.node_named[name], self._rank_of[name])
        first = next(iter(self._rank_of.values()), 0)
        for name in self._program.results:
            maker = self._program.producers.get(name)
            rank = self._rank_of.get(maker.name, first) if maker else self._home(name)
            self._need(name, rank)
            self._builder.result(name, self._mesh(rank), [REPLICATE])
        for name in self._program.sources:
            if is_owned(self._program, name) and not self._program.consumers[name]:
                self._need(name, first)
        built = self._builder.build(Provenance(planner="joint"), cluster=self._cluster.digest)
        return communicate_early(built)  # a rank does its steps in order: what is ready must not wait behind its next operation

    def _events(self) -> Iterator[int | ScheduledTransfer]:
        """Items and transfers by when they begin; a transfer after its item, also if both take no time."""
        position = {index: number for order in self._schedule.order for number, index in enumerate(order)}
        events: list[tuple[float, float, int, int, int | ScheduledTransfer]] = [
            (self._schedule.starts[index], self._schedule.ends[index], 0, position[index], index)
            for index in range(len(self._work.items))
        ]
        for number, transfer in enumerate(self._schedule.transfers):
            events.append((transfer.start_s, transfer.end_s, 1, number, transfer))
        done, waiting = set[int](), sorted(events, key=lambda event: event[:4])
        while waiting:
            late: list[tuple[float, float, int, int, int | ScheduledTransfer]] = []
            for event in waiting:
                step = event[4]
                is_ready = step.item in done if isinstance(step, ScheduledTransfer) else self._work.sources[step] <= done
                if not is_ready:
                    late.append(event)
                    continue
                if not isinstance(step, ScheduledTransfer):
                    done.add(step)
                yield step
            waiting = late

    def _mesh(self, rank: int) -> str:
        if rank not in self._meshes:
            self._meshes[rank] = self._builder.mesh(f"rank-{rank}", [MeshAxis(name="one", size=1)], [rank])
        return self._meshes[rank]

    def _home(self, source: str) -> int:
        """The rank of an owned source: that of its reader."""
        readers = [node.name for node in self._program.consumers[source] if node.name in self._rank_of]
        return self._rank_of[readers[0]] if readers else next(iter(self._rank_of.values()), 0)

    def _need(self, value: str, rank: int) -> None:
        """Makes sure that a rank holds a value that it does not have to be sent."""
        if (value, rank) in self._held:
            return
        maker = self._program.producers.get(value)
        if maker is None:
            self._held[value, rank] = self._builder.source(value, self._mesh(rank), [REPLICATE])
        elif maker.name in self._work.shared:
            self._apply(maker, rank)

    def _apply(self, node: Node, rank: int) -> None:
        if (node.name, rank) in self._of_node:
            return
        self._of_node.add((node.name, rank))
        for value in node.inputs:
            self._need(value, rank)
        strategy = Strategy((REPLICATE,) * len(node.inputs), (REPLICATE,) * len(node.outputs))
        self._builder.apply(node, self._mesh(rank), [strategy])
        for value in filter(None, node.outputs):
            self._held[value, rank] = self._builder.want(value, self._mesh(rank), [REPLICATE])

    def _send(self, transfer: ScheduledTransfer) -> None:
        for name in self._work.items[transfer.item].nodes:
            for value in filter(None, self._program.node_named[name].outputs):
                readers = (self._rank_of.get(reader.name) for reader in self._program.consumers[value])
                if transfer.target in readers and (value, transfer.target) not in self._held:
                    held = self._held[value, transfer.source]
                    self._held[value, transfer.target] = self._builder.transfer(held, self._mesh(transfer.target), [REPLICATE])
