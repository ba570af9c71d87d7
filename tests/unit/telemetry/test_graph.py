"""The graph that is learned from stories is the workflow's."""

from collections.abc import Sequence

import pytest

from dyorc.telemetry.graph_weights import GraphWeights
from dyorc.telemetry.record import Origin, RequestRecord
from dyorc.telemetry.workflow_graph import OTHER, WorkflowGraph, WorkflowGraphs
from tests.unit.telemetry.tales import Tale, edges_of, number_of

_S = 1_000_000_000


def learned_from(tales: Sequence[Tale]) -> GraphWeights:
    """Returns what is learned from requests that end at the same moment."""
    graph = WorkflowGraph()
    for tale in tales:
        graph.learn(tale.story, _S)
    return graph.weights()


def cascade(*, is_sure: bool) -> Tale:
    """A small net, and a large one if that is unsure."""
    tale = Tale()
    small = tale.call("small")
    sure = tale.decide("sure?", str(is_sure), small)
    if not is_sure:
        tale.call("large", under=(sure, "False"))
    return tale


def test_a_cascade() -> None:
    found = learned_from([cascade(is_sure=number != 0) for number in range(4)])

    assert edges_of(found) == {
        ("input", "small"): 1,
        ("small", "sure?"): 1,
        ("sure?", "answer", "True"): 0.75,
        ("sure?", "large", "False"): 0.25,
        ("large", "answer"): 0.25,
    }
    report = found.report(["small", "large"], requests_per_s=8)
    nodes = {node["id"]: node for node in report["nodes"]}
    assert (nodes["large"]["kind"], nodes["large"]["per_request"], nodes["large"]["calls_per_s"]) == ("program", 0.25, 2)
    edges = {(edge["source"], edge["target"]): edge for edge in report["edges"]}
    assert edges["sure?", "large"] == {
        "source": "sure?", "target": "large", "label": "False", "share": 0.25, "per_s": 2, "guessed_share": 0,
    }  # fmt: skip
    assert edges["large", "(answer)"]["share"] == 1
    assert report["num_requests"] == 4


def test_a_guard_beside_a_generator() -> None:
    harmless, harmful = Tale(), Tale()
    for tale, outcome in ((harmless, "True"), (harmful, "False")):
        guard = tale.call("guard")
        is_wrong = outcome == "False"
        is_harmless = tale.decide("harmless?", outcome, guard)
        tale.call("generate", under=(is_harmless, "True"), outcome="squashed" if is_wrong else "done", is_guess=True)

    found = learned_from([harmless, harmful])

    assert edges_of(found) == {
        ("input", "guard"): 1,
        ("guard", "harmless?"): 1,
        ("harmless?", "generate", "True"): 0.5,
        ("generate", "answer"): 0.5,
        ("harmless?", "answer", "False"): 0.5,
    }
    edges = {edge["label"]: edge for edge in found.report([], 1)["edges"]}
    assert edges["True"]["guessed_share"] == 1


def test_a_guard_that_is_asked_while_the_generator_runs() -> None:
    tale = Tale()
    guard = tale.call("guard")
    tale.call("generate")
    tale.decide("harmless?", "True", guard)

    assert edges_of(learned_from([tale])) == {
        ("input", "guard"): 1,
        ("input", "generate"): 1,
        ("guard", "harmless?"): 1,
        ("generate", "answer"): 1,
        ("harmless?", "answer", "True"): 1,
    }


def test_a_router_to_experts() -> None:
    tales = [Tale(), Tale(), Tale()]
    for tale, topic in zip(tales, ("travel", "banking", "travel"), strict=True):
        tokens = tale.call("tokenise")
        topics = tale.call("route", tokens)
        chosen = tale.decide("topic?", topic, topics)
        tale.call(topic, tokens, under=(chosen, topic))

    found = learned_from(tales)

    assert edges_of(found) == pytest.approx(
        {
            ("input", "tokenise"): 1,
            ("tokenise", "route"): 1,
            ("route", "topic?"): 1,
            ("topic?", "travel", "travel"): 2 / 3,
            ("topic?", "banking", "banking"): 1 / 3,
            ("travel", "answer"): 2 / 3,
            ("banking", "answer"): 1 / 3,
        },
        abs=1e-6,
    )


def test_a_fan_out_over_pieces() -> None:
    tale = Tale()
    found = tale.call("find")
    lines = [tale.call("read", found) for _ in range(5)]
    tale.call("join", *lines)

    learned = learned_from([tale])

    assert edges_of(learned) == {
        ("input", "find"): 1,
        ("find", "read"): 5,
        ("read", "join"): 5,
        ("join", "answer"): 1,
    }
    assert number_of(learned, "program", "read") == 5
    edges = {edge["target"]: edge for edge in learned.report([], requests_per_s=2)["edges"]}
    assert (edges["read"]["share"], edges["read"]["per_s"]) == (1, 10)
    assert edges["join"]["share"] == 1


def test_a_loop_that_halts() -> None:
    tale = Tale()
    step = tale.call("improve")
    place = (-1, "")
    for _ in range(3):
        number = tale.decide("good?", "False", step, under=place)
        place = (number, "False")
        step = tale.call("improve", step, under=place)
    tale.decide("good?", "True", step, under=place)

    assert edges_of(learned_from([tale])) == {
        ("input", "improve"): 1,
        ("improve", "good?"): 4,
        ("good?", "improve", "False"): 3,
        ("good?", "answer", "True"): 1,
    }


def nested(*, is_sure: bool) -> Tale:
    """A cascade that another workflow calls, to go on with its result."""
    tale = Tale()
    small = tale.call("small", depth=1)
    sure = tale.decide("sure?", str(is_sure), small, depth=1)
    result = small if is_sure else tale.call("large", under=(sure, "False"), depth=1)
    tale.call("explain", result)
    return tale


def test_a_workflow_within_a_workflow() -> None:
    found = learned_from([nested(is_sure=True), nested(is_sure=False)])

    assert edges_of(found) == {
        ("input", "small"): 1,
        ("small", "sure?"): 1,
        ("sure?", "explain", "True"): 0.5,
        ("sure?", "large", "False"): 0.5,
        ("large", "explain"): 0.5,
        ("explain", "answer"): 1,
    }


def test_a_program_alone_and_a_workflow_without_calls() -> None:
    alone = Tale()
    alone.call("double")

    assert edges_of(learned_from([alone])) == {("input", "double"): 1, ("double", "answer"): 1}
    assert edges_of(learned_from([Tale()])) == {("input", "answer"): 1}


def test_what_happened_only_in_a_wrong_guess_is_no_part_of_it() -> None:
    tale = Tale()
    small = tale.call("small")
    sure = tale.decide("sure?", "True", small)
    wrong = tale.call("large", under=(sure, "False"), outcome="squashed", is_guess=True)
    tale.decide("really?", "True", wrong, under=(sure, "False"))

    assert edges_of(learned_from([tale])) == {
        ("input", "small"): 1,
        ("small", "sure?"): 1,
        ("sure?", "answer", "True"): 1,
    }


def test_a_request_that_fails_does_not_reach_the_answer() -> None:
    tale = Tale(is_answered=False)
    tale.call("small", outcome="failed")

    assert edges_of(learned_from([tale])) == {("input", "small"): 1}


def test_the_graph_follows_the_traffic() -> None:
    graph = WorkflowGraph()
    for number in range(1000):
        graph.learn(cascade(is_sure=True).story, number * _S // 10)
    for number in range(1000, 3000):
        graph.learn(cascade(is_sure=False).story, number * _S // 10)

    edges = edges_of(graph.weights())

    assert edges["sure?", "large", "False"] > 0.98
    assert edges["small", "sure?"] == 1


def test_a_pause_changes_nothing() -> None:
    graph = WorkflowGraph()
    for number in range(200):
        graph.learn(cascade(is_sure=number % 2 == 0).story, _S)
    graph.learn(cascade(is_sure=True).story, 100_000 * _S)

    assert edges_of(graph.weights())["sure?", "large", "False"] == pytest.approx(0.5, abs=0.01)


def test_outcomes_are_bounded() -> None:
    graph = WorkflowGraph()
    for number in range(300):
        tale = Tale()
        looked = tale.call("look")
        tale.decide("which?", f"number {number}" * 100, looked)
        graph.learn(tale.story, number * _S)

    edges = edges_of(graph.weights())

    assert len(edges) <= 2 + 16 + 1
    assert ("which?", "answer", OTHER) in edges
    assert max(len(part) for edge in edges for part in edge) <= 60


def test_memory_is_bounded_when_every_request_goes_another_way() -> None:
    graph = WorkflowGraph()
    for number in range(3000):
        tale = Tale()
        for place in range(12):
            tale.call("one" if number >> place & 1 else "other one")
        graph.learn(tale.story, number * _S // 100)

    learned = graph.weights()

    assert graph.num_items <= 8192
    assert number_of(learned, "program", "one") == pytest.approx(6, abs=1)
    assert number_of(learned, "program", "one") + number_of(learned, "program", "other one") == pytest.approx(12)


def test_many_new_ways_at_once_are_sampled() -> None:
    graph = WorkflowGraph()
    for number in range(1000):
        tale = Tale()
        for _ in range(number % 997):
            tale.call("read")
        graph.learn(tale.story, _S)

    assert graph.num_looked_at < 600
    assert graph.weights().num_requests == 1000


def test_weights_stay_finite() -> None:
    graph = WorkflowGraph()
    for number in range(20_000):
        graph.learn(cascade(is_sure=number % 4 > 0).story, number * 60 * _S)

    assert edges_of(graph.weights())["sure?", "large", "False"] == pytest.approx(0.25, abs=0.01)


def test_what_processes_have_learned_adds_up() -> None:
    one, other = learned_from([cascade(is_sure=True)] * 3), learned_from([cascade(is_sure=False)])

    together = GraphWeights.of_values(one.as_values())
    together.merge(GraphWeights.of_values(other.as_values()))

    assert edges_of(together) == edges_of(learned_from([cascade(is_sure=number > 0) for number in range(4)]))


def test_what_is_never_used_is_shown_and_what_is_hardly_used_any_more_is_not() -> None:
    nothing = GraphWeights().report(["small"], 0)
    assert [node["id"] for node in nothing["nodes"]] == ["(input)", "(answer)", "small"]
    assert nothing["edges"] == []

    graph = WorkflowGraph()
    graph.learn(cascade(is_sure=False).story, 0)
    for number in range(5000):
        graph.learn(cascade(is_sure=True).story, number * _S)
    assert {edge["label"] for edge in graph.weights().report([], 1)["edges"]} == {"", "True"}


def test_records_are_sorted_by_workflow_and_those_without_a_story_left_out() -> None:
    graphs = WorkflowGraphs()
    for workflow, story in (("one", cascade(is_sure=True).story), ("two", Tale().story), ("two", None)):
        record = RequestRecord(
            number=1, origin=Origin(request_id="r", transport="http"), workflow=workflow, tenant="", started_ns=1, ended_ns=2,
            outcome="ok", story=story,
        )  # fmt: skip
        graphs.take(record)

    assert number_of(graphs.of("one"), "program", "small") == 1
    assert edges_of(graphs.of("two")) == {("input", "answer"): 1}
    assert graphs.of("three").num_requests == 0
    graphs.keep({"two"})
    assert graphs.of("one").num_requests == 0
    assert graphs.of("two").num_requests == 1
