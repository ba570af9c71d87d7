"""The graph that is learned from the engine's own stories is the workflow's."""

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.telemetry.graph_weights import GraphWeights
from dyorc.telemetry.workflow_graph import WorkflowGraph
from tests.unit.engine.driver import World
from tests.unit.telemetry.tales import edges_of

Vector = Float[np.ndarray, "2"]
Vectors = Float[np.ndarray, "batch 2"]


@dyorc.program(max_batch_size=4)
def small(x: Vectors) -> Vectors:
    return x


@dyorc.program(max_batch_size=4)
def large(x: Vectors) -> Vectors:
    return x


@dyorc.program(max_batch_size=4)
def explain(x: Vectors) -> Vectors:
    return x + 1


def is_sure(x: np.ndarray) -> bool:
    return bool(x[0] >= 0)


@dyorc.workflow
async def cascade(x: Vector) -> Vector:
    first = small(x)
    if await dyorc.when(first, is_sure):
        return first
    return large(x)


@dyorc.workflow
async def explained(x: Vector) -> Vector:
    return explain(cascade(x))


@dyorc.workflow
async def grow(x: Vector) -> Vector:
    grown = explain(x)
    while not await dyorc.when(grown, is_sure):
        grown = explain(grown)
    return grown


def learned_from(workflow: Workflow, programs: list[Program], *inputs: float, guesses: bool = False) -> GraphWeights:
    """Runs requests one after another and returns what is learned from the last of them; the others teach the engine to
    guess."""
    world = World(programs, EngineConfig(speculation=SpeculationConfig(enabled=guesses, margin=0)))
    for program in programs:
        world.join(program)
    graph = WorkflowGraph()
    for number, value in enumerate([*inputs[:1] * 20, *inputs]):
        event = world.arrival(workflow, [value, 0], explain=True)
        world.tell(event)
        while world.in_flight:
            world.advance(0.05)
            world.finish(execute_s=0.05)
        if number >= 20:
            graph.learn(world.stories[event.request_id], world.now_ns)
    return graph.weights()


CASCADE = {
    ("input", "small"): 1,
    ("small", "SURE"): 1,
    ("SURE", "answer", "True"): 0.5,
    ("SURE", "large", "False"): 0.5,
    ("large", "answer"): 0.5,
}


def named(edges: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Returns edges with one name for the only decision, whatever its line, and rounded."""
    return {
        tuple("SURE" if part.startswith("test_graph_of_engine.py") else part for part in edge): round(number, 2)
        for edge, number in edges.items()
    }


def test_a_cascade() -> None:
    assert named(edges_of(learned_from(cascade, [small, large], 1, -1))) == CASCADE


def test_a_cascade_whose_second_call_is_guessed() -> None:
    learned = learned_from(cascade, [small, large], -1, 1, guesses=True)

    assert named(edges_of(learned)) == CASCADE
    edges = {edge["label"]: edge for edge in learned.report([], 1)["edges"] if edge["target"] == "large"}
    assert edges["False"]["guessed_share"] == 1


def test_a_workflow_within_a_workflow() -> None:
    assert named(edges_of(learned_from(explained, [small, large, explain], 1, -1))) == {
        ("input", "small"): 1,
        ("small", "SURE"): 1,
        ("SURE", "explain", "True"): 0.5,
        ("SURE", "large", "False"): 0.5,
        ("large", "explain"): 0.5,
        ("explain", "answer"): 1,
    }


def test_a_loop() -> None:
    assert named(edges_of(learned_from(grow, [explain], -3))) == {
        ("input", "explain"): 1,
        ("explain", "SURE"): 3,
        ("SURE", "explain", "False"): 2,
        ("SURE", "answer", "True"): 1,
    }
