"""A parameter server: some ranks hold the parameters and update them; workers pull them, and push their gradients.

Each parameter lies on one server, with its gradient and the optimizer's states. It is pulled when a worker first needs it, and
its gradient is pushed as soon as it is made: the server adds what workers push, in their order. The step is synchronous.
"""

from collections.abc import Mapping, Sequence

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.planners.baselines.follow import AxisPlan, Choices, batch_of, choices_of, follow
from dyorc.planner.program import REPLICATE, Node, TensorProgram, ValueKind
from dyorc.planner.program.graph import Phase

_WORKERS = "workers"


def parameter_server(
    program: TensorProgram, cluster: Cluster, *, servers: int | None = None, ratios: Sequence[float] | None = None
) -> Plan:
    """Plans workers and servers.

    Args:
        program: What to plan.
        cluster: Where it runs.
        servers: How many ranks, the last ones, do nothing but serve; None: every rank works, and serves a part.
        ratios: The share of each worker in the batch; even if None.

    Raises:
        PlanError: No rank would be left to work.
    """
    num = cluster.num_ranks
    if servers is not None and not 0 < servers < num:
        raise PlanError(f"of {num} ranks, 1 to {num - 1} can serve alone, and {servers} were asked for")
    workers = range(num if servers is None else num - servers)
    choices = choices_of(program)
    along = follow(
        choices, MeshAxis(name="worker", size=len(workers)), batch_of(choices), ratios=tuple(ratios or [1.0] * len(workers))
    )
    planning = _Planning(choices, along, workers, workers if servers is None else range(num - servers, num))
    return planning.plan(cluster)


class _Planning:
    def __init__(self, choices: Choices, along: AxisPlan, workers: Sequence[int], servers: Sequence[int]) -> None:
        self._choices = choices
        self._program = choices.program
        self._along = along
        self._gradients = {gradient: parameter for parameter, gradient in choices.program.gradients.items()}
        self._builder = PlanBuilder(choices.program, choices.axes)
        self._builder.mesh(_WORKERS, [along.axis], workers, {along.axis.name: along.ratios})
        for server in servers:
            self._builder.mesh(_server(server), [MeshAxis(name="server", size=1)], [server])
        self._servers = tuple(map(_server, servers))
        self._owners = _owners(choices.program, self._servers)

    def plan(self, cluster: Cluster) -> Plan:
        program, builder = self._program, self._builder
        for name in program.sources:
            for mesh in self._meshes_of(name):
                builder.source(name, mesh, [self._along.sources[name] if mesh == _WORKERS else REPLICATE])
        for node in program.nodes:
            if node.phase is Phase.UPDATE:
                for mesh in dict.fromkeys(mesh for name in node.outputs if name for mesh in self._meshes_of(name)):
                    builder.apply(node, mesh, [self._choices.strategies[node.name][0]])
            else:
                self._work(node)
        for name in dict.fromkeys((*program.returned, *program.gradients.values(), *program.updates.values())):
            mesh = self._meshes_of(name)[0]
            builder.result(name, mesh, [self._along.results[name] if mesh == _WORKERS else REPLICATE])
        return builder.build(Provenance(planner="parameter_server"), cluster=cluster.digest)

    def _work(self, node: Node) -> None:
        strategy = self._along.strategies[node.name]
        self._builder.apply(node, _WORKERS, [strategy])
        for name, placement in zip(node.outputs, strategy.outputs, strict=True):
            if name in self._gradients:
                made = self._builder.want(name, _WORKERS, [placement])
                self._builder.transfer(made, self._owners[name], [REPLICATE])

    def _meshes_of(self, name: str) -> Sequence[str]:
        """Where a value lies: on its server; on all servers, if it is the optimizer's and of none; else on workers."""
        if name in self._owners:
            return (self._owners[name],)
        producer = self._program.producers.get(name)
        is_of_update = producer is not None and producer.phase is Phase.UPDATE
        is_state = self._program.values[name].kind is ValueKind.STATE
        return self._servers if is_of_update or is_state else (_WORKERS,)


def _server(rank: int) -> str:
    return f"server{rank}"


def _owners(program: TensorProgram, servers: Sequence[str]) -> Mapping[str, str]:
    """The server of each parameter and gradient, and of all that the optimizer makes of them: the largest parameters go first,
    each to the server that has least.
    """
    held, server_of = dict.fromkeys(servers, 0), dict[str, str]()
    for parameter in sorted(program.parameters, key=lambda name: (-program.values[name].num_bytes, name)):
        server = min(servers, key=lambda name: held[name])
        held[server] += program.values[parameter].num_bytes
        server_of[parameter] = server
        if parameter in program.gradients:
            server_of[program.gradients[parameter]] = server
    shared = {name for name in program.sources if program.values[name].kind is ValueKind.STATE and not program.values[name].shape}
    updates = [node for node in program.nodes if node.phase is Phase.UPDATE]
    for node in updates:
        if shared.issuperset(node.inputs):  # such as Adam's count of steps
            shared.update(node.outputs)
    groups = [[name for name in (*node.inputs, *node.outputs) if name and name not in shared] for node in updates]
    while waiting := [group for group in groups if not server_of.keys() >= set(group)]:
        before = len(server_of)
        for group in waiting:
            known = [server_of[name] for name in group if name in server_of]
            server_of |= dict.fromkeys(group, known[0]) if known else {}
        if len(server_of) == before:
            raise PlanError(f"{sorted(set(waiting[0]))} of the optimizer belong to no parameter")
    return server_of
