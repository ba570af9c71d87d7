"""What the live page reads of a real server: of two cells, under load, the same as its metrics; graphs as the workflows are."""

import importlib
import json
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from dyorc.testing import ServerProcess
from tests.deadlines import wait_until
from tests.e2e.test_supervised_cells import wait_for_both
from tests.server_process import client_of, serving, target
from tests.trace_format import check_text

_EXAMPLES = Path(__file__).parents[2] / "examples"
TARGETS = (
    f"{_EXAMPLES}/digits/workflow.py:classify",
    f"{_EXAMPLES}/guarded/workflow.py:guarded",
    target("arithmetic", "double_until_large"),
)
NUM_REQUESTS = 60


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """Two cells that have answered requests of three workflows."""
    with serving([*TARGETS, "--cells", "2"], in_process=True) as found:
        wait_for_both(found)
        draw = random.Random(4)
        messages = draw_messages()
        bodies = [body(draw, number, messages) for number in range(3 * NUM_REQUESTS)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(partial(ask, found), *zip(*bodies, strict=True)))
        yield found


def draw_messages() -> list[list[int]]:
    """Returns messages for the guarded generator, a third of them harmful."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_EXAMPLES / "guarded")
        texts = importlib.import_module("guarded_texts")
        messages = texts.draw_messages(NUM_REQUESTS, 1 / 3, seed=4, is_held_out=True)
        return [texts.encode(message.text).tolist() for message in messages]


def body(draw: random.Random, number: int, messages: list[list[int]]) -> tuple[str, dict[str, Any]]:
    """Returns a workflow's name and a request of it."""
    match number % 3:
        case 0:
            data = [draw.random() for _ in range(64)]
            return "classify", {"name": "image", "shape": [1, 8, 8], "datatype": "FP32", "data": data}
        case 1:
            return "guarded", {"name": "text", "shape": [64], "datatype": "UINT8", "data": messages[number // 3]}
        case _:
            return "double_until_large", {"name": "x", "shape": [4], "datatype": "FP32", "data": [30.0, 1, 1, 1]}


def ask(server: ServerProcess, model: str, tensor: dict[str, Any]) -> None:
    """Sends one request on a separate connection, so that any cell may get it."""
    with client_of(server) as client:
        client.post(f"/v2/models/{model}/infer", json={"inputs": [tensor]}).raise_for_status()


def get(server: ServerProcess, path: str, **parameters: Any) -> dict[str, Any]:
    """Returns the JSON of a route."""
    with client_of(server) as client:
        answer = client.get(path, params=parameters)
        answer.raise_for_status()
        return answer.json()


def metric(text: str, name: str, **labels: str) -> float:
    """Returns the sum of a metric's series with these labels."""
    found = 0.0
    for line in text.splitlines():
        if line.startswith(f"{name}{{") and all(f'{label}="{value}"' in line for label, value in labels.items()):
            found += float(line.rpartition(" ")[2])
    return found


def test_totals_are_those_of_the_metrics(server: ServerProcess) -> None:
    live = get(server, "/live")
    with client_of(server) as client:
        text = client.get("/metrics").text

    assert len([cell for cell in live["cells"] if cell["pid"] is not None]) == 2
    for name, workflow in live["workflows"].items():
        assert workflow["requests_total"] == metric(text, "dyorc_requests_total", workflow=name) == NUM_REQUESTS
    assert set(live["programs"]) == {"small", "large", "guarding", "generating", "double"}
    for name, program in live["programs"].items():
        assert program["calls_total"] == metric(text, "dyorc_calls_total", program=name)
        assert program["batches_total"] == metric(text, "dyorc_batches_total", program=name)
        assert sum(program["batch_sizes"].values()) == program["batches_total"]
        for reason, number in program["form_reasons"].items():
            assert number == metric(text, "dyorc_batches_total", program=name, reason=reason)
        assert program["num_guesses"] == metric(text, "dyorc_guesses_total", program=name)
    assert live["programs"]["double"]["calls_total"] == 2 * NUM_REQUESTS


def test_the_trace_of_both_cells_has_the_published_form(server: ServerProcess) -> None:
    with client_of(server) as client:
        trace = check_text(client.get("/trace", params={"seconds": 600}).content)
    assert trace["otherData"]["num_requests"] == 3 * NUM_REQUESTS
    assert {event["pid"] for event in trace["traceEvents"]} == {1, 2, 3, 4}
    assert {event["cat"] for event in trace["traceEvents"] if event["ph"] == "s"} == {"call", "tensor"}


def edges_of(graph: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """Returns each edge's share, with one name for all decisions and without empty labels."""
    found: dict[tuple[str, ...], float] = {}
    for edge in graph["edges"]:
        ends = [re.sub(r"^\w+\.py, line \d+$", "DECISION", edge[end]) for end in ("source", "target")]
        found[(*ends, edge["label"]) if edge["label"] else tuple(ends)] = edge["share"]
    return found


def per_request(graph: dict[str, Any], program: str) -> float:
    """Returns how often a request calls a program."""
    return next(node["per_request"] for node in graph["nodes"] if node["id"] == program)


def test_the_graph_of_the_cascade(server: ServerProcess) -> None:
    graph, live = get(server, "/graph", workflow="classify"), get(server, "/live")

    edges = edges_of(graph)

    assert graph["num_requests"] == NUM_REQUESTS
    assert set(edges) == {
        ("(input)", "small"),
        ("small", "DECISION"),
        ("DECISION", "(answer)", "True"),
        ("DECISION", "large", "False"),
        ("large", "(answer)"),
    }
    assert edges["DECISION", "(answer)", "True"] + edges["DECISION", "large", "False"] == pytest.approx(1, abs=0.01)
    needed = live["programs"]["large"]["calls_total"] - live["programs"]["large"]["num_squashed"]
    assert per_request(graph, "large") == pytest.approx(needed / NUM_REQUESTS, abs=0.05)


def test_the_graph_of_the_guarded_generator(server: ServerProcess) -> None:
    edges = edges_of(get(server, "/graph", workflow="guarded"))

    assert set(edges) == {
        ("(input)", "guarding"),
        ("guarding", "DECISION"),
        ("DECISION", "generating", "True"),
        ("generating", "(answer)"),
        ("DECISION", "(answer)", "False"),
    }
    assert edges["DECISION", "generating", "True"] == pytest.approx(2 / 3, abs=0.2)


def test_the_graph_of_the_loop(server: ServerProcess) -> None:
    graph = get(server, "/graph", workflow="double_until_large")

    assert set(edges_of(graph)) == {
        ("(input)", "DECISION"),
        ("DECISION", "double", "True"),
        ("double", "DECISION"),
        ("DECISION", "(answer)", "False"),
    }
    assert per_request(graph, "double") == pytest.approx(2)


def test_events_follow_the_traffic_of_all_cells(server: ServerProcess) -> None:
    with httpx.stream("GET", f"{server.url}/events", timeout=60, trust_env=False) as answer:
        lines = answer.iter_lines()
        before = next_event(lines)["workflows"]["double_until_large"]["requests_total"]
        for _ in range(6):
            ask(server, *body(random.Random(1), 2, []))
        while next_event(lines)["workflows"]["double_until_large"]["requests_total"] < before + 6:
            pass


def next_event(lines: Iterator[str]) -> dict[str, Any]:
    """Returns the data of the next event."""
    return json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))


def test_the_past_is_that_of_all_cells(server: ServerProcess) -> None:
    def num_warm() -> list[float | None]:
        return get(server, "/history", program="double", window_s=10)["values"].get("num_warm", [])

    wait_until(lambda: 2 in num_warm(), "the samples of both cells meet")
