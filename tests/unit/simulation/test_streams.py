"""Simulated workflows that stream, programs that yield, and programs that declare what a call costs."""

from collections.abc import AsyncIterator

import pytest

import dyorc
from dyorc.authoring.workflow import workflow
from dyorc.core.tensor import TensorRef
from dyorc.engine.events import RequestArrived
from dyorc.errors import InvalidInputError
from dyorc.simulation.plain_evaluation import evaluate, operand_of, tensor_of
from dyorc.simulation.policies import policy
from dyorc.simulation.simulate import simulate, visits_per_request
from dyorc.simulation.value_draws import Value, draw_parts
from dyorc.simulation.workload import Deployment, Number, Workload
from dyorc.simulation.workloads import workload
from dyorc.simulation.workloads.streams import STREAMING, chat, follow, listen, prefill, summarise
from dyorc.simulation.world import Machines, World

MS = 1_000_000


class Parts:
    """Writes down the parts of each answer and when the last came, in ms."""

    def __init__(self) -> None:
        self.answers: dict[int, tuple[Value, ...]] = {}
        self.ended_ms: dict[int, float] = {}
        self.executed_ms: list[float] = []

    def arrived(self, event: RequestArrived, now_ns: int) -> None:
        """Does nothing."""

    def dispatched(self, program: str, outputs: list[tuple[TensorRef, ...]], execute_ns: int) -> None:
        self.executed_ms.append(execute_ns / MS)

    def answered(self, request_id: int, tensors: tuple[TensorRef, ...], now_ns: int) -> None:
        self.answers[request_id] = tuple(operand_of(tensor) for tensor in tensors)
        self.ended_ms[request_id] = now_ns / MS


def run_world(subject: Workload, policy_name: str, arrivals_ms: list[float], replicas: int | None = None) -> Parts:
    """Runs a world in which request k brings the number k/1000."""
    parts = Parts()
    world = World(
        policy(policy_name)(subject.programs, 0), subject.deployments, Machines(subject.num_replicas(replicas), 100_000), parts
    )
    world.run(
        iter(
            (round(at_ms * MS), RequestArrived(at, subject.workflow, (tensor_of(at / 1000),)))
            for at, at_ms in enumerate(arrivals_ms, 1)
        )
    )
    return parts


@workflow
async def hear(audio: Number) -> AsyncIterator[Number]:
    async for phrase in listen(audio):
        yield phrase


HEARING = Workload("hearing", hear, (Deployment(program=listen, base_s=0.1, item_s=0.02),))


@pytest.mark.parametrize("name", STREAMING)
def test_the_plain_parts_are_those_of_the_real_programs(name: str) -> None:
    for value in (0.25, 0.5):
        assert evaluate(workload(name).workflow, [value]).answers == tuple(dyorc.run(workload(name).workflow, value))


@pytest.mark.parametrize("name", STREAMING)
@pytest.mark.parametrize("policy_name", ["greedy", "speculate", "oracle"])
def test_parts_do_not_depend_on_policy_or_time(name: str, policy_name: str) -> None:
    expected = {at: evaluate(workload(name).workflow, [at / 1000]).answers for at in range(1, 7)}
    for gap_ms in (0.0, 40.0):
        assert run_world(workload(name), policy_name, [at * gap_ms for at in range(6)]).answers == expected


def test_parts_come_one_after_another() -> None:
    """By hand: the way there and back takes 0.2 ms, the first part 120 ms, each further one 20 ms."""
    parts = run_world(HEARING, "greedy", [0.0, 0.0])
    for at in (1, 2):
        values = draw_parts("listen", at / 1000, 12)
        assert parts.answers[at] == tuple(values)
        assert parts.ended_ms[at] == pytest.approx(0.2 + 100 + 20 * len(values), abs=0.001)


@workflow
async def follow_along(audio: Number) -> AsyncIterator[Number]:
    async for text in follow(listen(audio)):
        yield text


@workflow
async def sum_up(audio: Number) -> Number:
    return summarise(listen(audio))


@pytest.mark.parametrize("item_s", [0.005, 0.050])
def test_a_program_works_on_each_part_as_it_comes(item_s: float) -> None:
    """By hand: parts come after 120, 140, ... ms. Faster than that, `follow` ends 5 ms after the last; slower, it works without a
    pause from the first on."""
    subject = Workload(
        "following", follow_along,
        (Deployment(program=listen, base_s=0.1, item_s=0.02), Deployment(program=follow, base_s=0.001, item_s=item_s)),
    )  # fmt: skip
    parts = run_world(subject, "greedy", [0.0, 0.0])
    for at in (1, 2):
        number = len(draw_parts("listen", at / 1000, 12))
        assert len(parts.answers[at]) == number > 1
        came_ms = 0.2 + 100 + 20 * number if item_s < 0.02 else 0.2 + 120 + 1 + 1000 * item_s * (number - 1)
        assert parts.ended_ms[at] == pytest.approx(came_ms + 0.2 + 1000 * item_s, abs=0.001)


def test_a_result_comes_at_the_end_of_the_stream() -> None:
    subject = Workload(
        "summing", sum_up,
        (Deployment(program=listen, base_s=0.1, item_s=0.02), Deployment(program=summarise, base_s=0.001, item_s=0.002)),
    )  # fmt: skip
    parts = run_world(subject, "greedy", [0.0])
    number = len(draw_parts("listen", 0.001, 12))
    assert parts.answers[1] == evaluate(sum_up, [0.001]).answers
    assert parts.ended_ms[1] == pytest.approx(0.2 + 100 + 20 * number + 0.2 + 2, abs=0.001)
    assert parts.executed_ms[-1] == pytest.approx(1 + 2 * number)


def test_a_batch_takes_as_long_as_its_cost_says() -> None:
    @workflow
    async def read(prompt: Number) -> Number:
        return prefill(prompt, length=100 if await prompt < 0.0015 else 700)[0]

    subject = Workload("read", read, (Deployment(program=prefill, base_s=0.01, item_s=0.0001, mean_cost=600),))
    parts = run_world(subject, "greedy", [0.0, 100.0, 200.0, 200.0, 200.0])
    assert parts.executed_ms == pytest.approx([20.0, 80.0, 150.0, 80.0]), "three of 700 cost more than 2,048"
    assert subject.deployments[0].full_batch_item_s == pytest.approx(0.06 + 0.01 * 600 / 2048)


def test_every_streaming_workload_can_be_simulated() -> None:
    for name, number in (("relay", 60), ("captions", 60), ("chat", 12)):
        result = simulate(name, "speculate", load=0.3, num_requests=number)
        assert result.throughput_rps > 0
        assert all(visits > 0.5 for visits in visits_per_request(workload(name)).values())


def run_chats(limit: int | None) -> World:
    """Lets six chats run side by side on one process."""
    subject = chat(limit)
    world = World(
        policy("greedy")(subject.programs, 0), subject.deployments, Machines(subject.num_replicas(1), 100_000), (parts := Parts())
    )
    arrivals = [RequestArrived(at, subject.workflow, (tensor_of(at / 1000),)) for at in range(1, 7)]
    world.run(iter([(at * MS, arrival) for at, arrival in enumerate(arrivals)]))
    expected = {each.request_id: evaluate(subject.workflow, [operand_of(each.inputs[0])]).answers for each in arrivals}
    assert parts.answers == expected
    return world


def test_residents_stay_in_their_process_and_end_with_their_chats() -> None:
    world = run_chats(None)
    assert not len(world.residents)
    assert list(world.residents.most_bytes) == ["lm#0"]


def test_a_limit_of_residents_holds_and_all_chats_end() -> None:
    most = run_chats(None).residents.most_bytes["lm#0"]
    limited = run_chats(most // 2).residents
    assert limited.most_bytes["lm#0"] < most
    assert not len(limited)


def test_programs_of_a_group_need_as_many_replicas_as_each_other() -> None:
    with pytest.raises(InvalidInputError, match="the programs of group 'lm' share processes"):
        chat().num_replicas({"prefill": 1})


def test_batching_by_timer_knows_no_parts() -> None:
    with pytest.raises(InvalidInputError, match="has programs that yield, which 'timer' does not know"):
        simulate("relay", "timer", load=0.5)
