"""Tensors are staged once, on the node where they will be needed."""

import pytest

import dyorc
from tests.unit.engine.driver import World
from tests.unit.engine.leasing_world import NO_GUESSES
from tests.unit.engine.programs import Vector, add, add_one


def staging_world(*nodes: str) -> World:
    """Makes a world with `add_one` on node "a", and replicas of `add` on these."""
    world = World([add_one, add], NO_GUESSES, is_placing=True)
    world.join(add_one, "maker", node="a")
    for at, node in enumerate(nodes):
        world.join(add, f"user-{at}", node=node)
    return world


@dyorc.workflow
async def made_and_used_twice(x: Vector) -> Vector:
    made = add_one(x)
    return add(made, made)


def make_busy(world: World, num_replicas: int) -> None:
    """Gives each of the using replicas a batch."""
    for number in range(num_replicas):
        world.submit(made_and_used_twice, [number, number])
        world.finish(world.batches(add_one)[-1])
    assert len(world.batches(add)) == num_replicas


def test_inputs_on_another_node_are_staged_once_for_the_least_loaded_replica_while_their_calls_wait() -> None:
    world = staging_world("b", "b")
    make_busy(world, 2)
    assert not world.staged, "who is sent a batch at once fetches its inputs with it"
    world.submit_all(made_and_used_twice, [[0, 0], [1, 1]])
    world.finish(world.batches(add_one)[-1])
    rows = [(tensor.holder, tensor.offset) for action in world.staged for tensor in action.tensors]
    assert {action.replica_id for action in world.staged} == {"user-0"}
    assert rows == [("maker", 0), ("maker", 64)]
    world.finish_all()
    world.check_nothing_is_left()


@pytest.mark.parametrize("nodes", [["a"], ["a", "b"], ["b", "c"], [], [""]])
def test_nothing_is_staged_where_it_lies_or_if_the_place_is_unclear(nodes: list[str]) -> None:
    world = staging_world(*nodes)
    make_busy(world, len(nodes))
    world.submit(made_and_used_twice, [0, 0])
    world.finish(world.batches(add_one)[-1])
    assert not world.staged


def test_a_replica_that_comes_back_takes_waiting_calls_and_gets_their_inputs_staged() -> None:
    world = staging_world("b")
    make_busy(world, 1)
    world.submit(made_and_used_twice, [7, 7])
    world.finish(world.batches(add_one)[-1])
    assert len(world.staged) == 1
    world.leave("user-0")
    world.join(add, "user-0", node="b")
    taken = world.batches(add)[-1]
    assert taken.size == 1, "it took what waited, with its inputs; who was alone on it when it left waits for longer"
    world.submit(made_and_used_twice, [8, 8])
    world.finish(world.batches(add_one)[-1])
    assert len(world.staged) == 2
    world.finish_all()
    world.check_nothing_is_left()


def test_nodes_are_counted() -> None:
    world = staging_world("a", "b", "b")
    pool = world.engine.scheduler.pools["add"]
    assert pool.num_replicas_on == {"a": 1, "b": 2}
    world.leave("user-0")
    world.leave("user-1")
    assert pool.num_replicas_on == {"b": 1}
