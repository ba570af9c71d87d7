"""A workload so small that its times can be worked out by hand."""

from collections.abc import Sequence

from dyorc.authoring.program import program
from dyorc.authoring.workflow import workflow
from dyorc.core.tensor import TensorRef
from dyorc.engine.events import RequestArrived
from dyorc.simulation.plain_evaluation import operand_of, tensor_of
from dyorc.simulation.policies import policy
from dyorc.simulation.value_draws import Value, draw
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers, Workload
from dyorc.simulation.world import Machines, World

NS_PER_MS = 1_000_000


@program(max_batch_size=32, max_queued_calls=MAX_QUEUED_CALLS)
def net(x: Numbers) -> Numbers:
    """Draws numbers: the only program."""
    return draw("net", x)


@workflow
async def flow(x: Number) -> Number:
    """Makes one call."""
    return net(x)


def tiny(base_s: float = 0.010, item_s: float = 0.001) -> Workload:
    """Returns a workload of one call of one program on one replica."""
    return Workload("tiny", flow, (Deployment(program=net, base_s=base_s, item_s=item_s),))


class Diary:
    """Writes down what happens in a world: sizes of batches in order, and answers with their latencies, by request."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.answers: dict[int, Value] = {}
        self.latencies_ms: dict[int, float] = {}
        self._arrived_ns: dict[int, int] = {}

    def arrived(self, event: RequestArrived, now_ns: int) -> None:
        self._arrived_ns[event.request_id] = now_ns

    def dispatched(self, program: str, outputs: Sequence[tuple[TensorRef, ...]], execute_ns: int) -> None:
        self.sizes.append(len(outputs))

    def answered(self, request_id: int, tensors: tuple[TensorRef, ...], now_ns: int) -> None:
        assert request_id not in self.answers
        self.answers[request_id] = operand_of(tensors[0])
        self.latencies_ms[request_id] = (now_ns - self._arrived_ns[request_id]) / NS_PER_MS


def run_world(
    workload: Workload, policy_name: str, arrivals_ms: Sequence[float], replicas: int | None = None, link_ms: float = 0.1
) -> Diary:
    """Runs a world in which request k arrives at ``arrivals_ms[k - 1]`` and brings the number k/1000."""
    diary = Diary()
    engine = policy(policy_name)(workload.programs, 0)
    machines = Machines(workload.num_replicas(replicas), int(link_ms * NS_PER_MS))
    world = World(engine, workload.deployments, machines, diary)
    world.run(
        (round(at_ms * NS_PER_MS), RequestArrived(request_id, workload.workflow, (tensor_of(request_id / 1000),)))
        for request_id, at_ms in enumerate(arrivals_ms, 1)
    )
    return diary
