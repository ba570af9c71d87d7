"""The live page in a browser, of a real server under a little load: what it shows is what the server did."""

import io
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from PIL import Image

import dyorc
from dyorc.testing import ServerProcess
from tests import oip
from tests.browser import Watched, chromium, tab
from tests.deadlines import wait_until
from tests.example_load import Load, examples
from tests.server_process import client_of, target
from tests.workflows.slow import narrow_program

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.together

NUM_THREADS, NUM_EACH = 3, 40
HELD_S = 1.0
"""How long a test holds up requests: longer than anything else that happens to most of them."""


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Runs one for all tests."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server(browser: "Browser") -> Iterator[ServerProcess]:
    """Serves two examples to which a few requests have been sent, and a workflow that a test can hold up."""
    with examples(target("slow", "narrow")) as found:
        Load(found).send_from(NUM_THREADS, NUM_EACH)
        yield found


def show(watched: Watched, server: ServerProcess, view: str, sign: str) -> None:
    """Opens a view, and waits for what shows that it is complete."""
    watched.open(f"{server.url}/ui/#/{view}")
    watched.page.wait_for_selector(sign)


def get(server: ServerProcess, path: str) -> Any:
    """Returns the JSON of a route."""
    with client_of(server) as client:
        return client.get(path).raise_for_status().json()


def test_a_browser_gets_the_page_under_load_and_nothing_goes_wrong(browser: "Browser", server: ServerProcess) -> None:
    with Load(server).running(2, 400), tab(browser) as watched:
        watched.page.goto(server.url)
        watched.page.wait_for_selector(".g-node")
        assert watched.page.url == f"{server.url}/ui/"
        for view in ("programs", "requests", "try", "jobs", "tenants", "scaling", "programs/generating"):
            show(watched, server, view, "table, fieldset, [role=table], .empty, .panel")
            watched.assert_accessible()
        assert watched.hosts == {server.url.split("/")[2]}


def test_the_graph_is_that_of_the_workflow(browser: "Browser", server: ServerProcess) -> None:
    graph = get(server, "/graph?workflow=guarded")
    with tab(browser) as watched:
        show(watched, server, "", "[data-edge]")
        nodes = watched.page.locator("[data-node]").evaluate_all("all => all.map(one => [one.dataset.node, one.textContent])")
        edges = watched.page.locator("[data-edge]").evaluate_all("all => all.map(one => [one.dataset.edge, one.textContent])")
    names = dict(nodes)
    assert set(names) == {node["id"] for node in graph["nodes"]}
    assert {"guarding", "generating"} < set(names)
    decision = next(name for name, text in nodes if "decision" in text)
    assert re.search(r"workflow\.py", names[decision])
    drawn = {name for name, _ in edges}
    assert {f"guarding→{decision}", f"{decision}→generating"} <= drawn
    assert len(edges) == len(graph["edges"])
    shares = {text for name, text in edges if name.startswith(decision)}
    assert any(re.search(r"True \d+\s%", text) for text in shares)
    assert any(re.search(r"False \d+\s%", text) for text in shares)


def test_figures_are_those_of_the_statistics_and_the_metrics(browser: "Browser", server: ServerProcess) -> None:
    with tab(browser) as watched:
        show(watched, server, "", "[data-figure=requests_total]")
        Load(server).send(7)
        statistics = get(server, "/v2/models/guarded/stats")["model_stats"][0]["inference_stats"]
        total = statistics["success"]["count"] + statistics["fail"]["count"]
        figure = (
            "(total) => Number(document.querySelector('[data-figure=requests_total]').textContent.replace(/\\D/g, '')) === total"
        )
        watched.page.wait_for_function(figure, arg=total)  # the next refresh
        with client_of(server) as client:
            lines = client.get("/metrics").text.splitlines()
        counted = [line for line in lines if line.startswith("dyorc_requests_total{") and 'workflow="guarded"' in line]
        assert sum(float(line.rpartition(" ")[2]) for line in counted) == total

        show(watched, server, "programs/generating", "[data-figure=calls_total]")
        program = get(server, "/live")["programs"]["generating"]
        shown = watched.page.locator("[data-figure=calls_total], [data-figure=batches_total]").all_inner_texts()
        assert [int(re.sub(r"\D", "", text)) for text in shown] == [program["calls_total"], program["batches_total"]]


def test_the_slowest_request_is_told_completely(browser: "Browser", server: ServerProcess) -> None:
    with tab(browser) as watched:
        show(watched, server, "requests?workflow=guarded&order=slowest", ".rows-row")
        link = watched.page.locator(".rows-row a").first
        request = get(server, f"/requests/{link.inner_text()}")
        slowest = get(server, "/requests?workflow=guarded&order=slowest&limit=1")["requests"][0]
        assert request["request_id"] == slowest["request_id"]
        link.click()
        watched.page.wait_for_selector(".tl-label[data-key]")
        rows = watched.page.locator(".tl-label[data-key] .tl-name").all_inner_texts()
        assert sum("workflow.py" not in row for row in rows) == len(request["calls"])
        assert sum("workflow.py" in row for row in rows) == len(request["decisions"])
        assert watched.page.locator(".worst").inner_text() == request["diagnosis"][0]
        watched.page.locator(".tl-label[data-key=c0]").click()
        batch = request["batches"][request["calls"][0]["batches"][0]]
        assert f"Batch of {batch['size']}" in watched.page.locator(".batch").inner_text()
        assert batch["replica"] in watched.page.locator(".batch").inner_text()
        watched.assert_accessible()


def test_the_slowest_are_shown_beside_typical_ones(browser: "Browser", server: ServerProcess) -> None:
    with tab(browser) as watched:
        show(watched, server, "requests?workflow=guarded", ".rows-row")
        assert watched.page.locator(".tail").count() == 0
        watched.page.get_by_role("button", name="Slowest").click()
        watched.page.wait_for_selector(".tail [data-stage]")
        tail = get(server, "/tail?workflow=guarded&share=0.01")  # of a server that nothing asks now
        rows = watched.page.locator(".tail [data-stage]")
        assert rows.evaluate_all("all => all.map(one => one.dataset.stage)") == [each["stage"] for each in tail["stages"]]
        shown = [_in_ms(text) for text in rows.locator("td:nth-child(2)").all_inner_texts()]
        assert shown == pytest.approx([each["slowest_ms"] for each in tail["stages"]], rel=0.05, abs=0.001)
        typical = [_in_ms(text) for text in rows.locator("td:nth-child(3)").all_inner_texts()]
        assert typical == pytest.approx([each["typical_ms"] for each in tail["stages"]], rel=0.05, abs=0.001)
        assert f"of {tail['num_requests']} requests" in watched.page.locator(".tail .note").inner_text().replace("\u202f", "")
        watched.assert_accessible()
        watched.page.locator(".tail").get_by_role("link").first.click()
        watched.page.wait_for_selector(".worst")
        assert watched.page.locator("h1").inner_text() == f"Request {tail['slowest'][0]['request_id']}"


def _in_ms(text: str) -> float:
    """Returns a time as the page writes it, in milliseconds."""
    value, _, unit = text.replace("\u202f", " ").partition(" ")
    return float(value) * {"ms": 1, "s": 1e3, "µs": 1e-3, "min": 6e4}[unit]


def test_the_form_sends_text_and_leads_to_its_timeline(browser: "Browser", server: ServerProcess) -> None:
    with tab(browser) as watched:
        show(watched, server, "try/guarded", "fieldset")
        watched.page.get_by_label("Text of text").fill("Please water the plants")
        watched.page.get_by_role("button", name="Send").click()
        answer = watched.page.locator("pre.out").inner_text()
        with dyorc.Client(server.url) as client:
            text = np.frombuffer(b"Please water the plants".ljust(64), np.uint8)
            assert answer == client.infer("guarded", text=text).tobytes().decode()
        watched.page.get_by_role("link", name="Timeline of this request").click()
        watched.page.wait_for_selector(".tl-label[data-key]")
        assert watched.page.locator("h1").inner_text().startswith("Request ui-")


def test_the_form_shows_the_parts_of_a_stream(browser: "Browser", server: ServerProcess) -> None:
    with tab(browser) as watched:
        show(watched, server, "try/guarded_story", "fieldset")
        watched.page.get_by_label("num_pieces").fill("3")
        watched.page.get_by_role("button", name="Send").click()
        watched.page.get_by_role("link", name="Timeline of this request").wait_for()
        assert watched.page.locator("pre.out").count() == 3


def test_the_form_takes_an_image_as_the_model_wants_it(browser: "Browser", server: ServerProcess) -> None:
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    with tab(browser) as watched:
        show(watched, server, "try/classify", "fieldset")
        watched.page.get_by_label("Drop an image here").set_input_files(
            {"name": "digit.png", "mimeType": "image/png", "buffer": file.getvalue()}
        )
        watched.page.locator("canvas:not([hidden])").wait_for()
        watched.page.get_by_role("button", name="Send").click()
        shown = watched.page.locator("pre.out").first.inner_text()
    with dyorc.Client(server.url) as client:
        answer = client.infer("classify", image=(pixels / 255).astype(np.float32)[None])
    wanted = answer["probabilities"] if isinstance(answer, dict) else answer.probabilities
    assert [float(value) for value in shown.split(", ")] == pytest.approx(wanted.tolist(), rel=1e-3, abs=1e-6)


class FullQueue:
    """Requests of `narrow`: one runs, the next is with the replica, as many wait as may, and one is refused.

    Args:
        folder: Where the program looks for its gate.

    Attributes:
        waiting: Ids of the requests that waited.
        refused: The answer to the last one.
    """

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.waiting = [f"waits-{number}" for number in range(1 + narrow_program.options.max_queued_calls)]

    def run(self) -> None:
        """Sends them one after another, so that a pause delays one of them. Opens the gate, and returns when all have ended."""
        with client_of(self._server) as client, ThreadPoolExecutor(1 + len(self.waiting)) as pool:
            try:
                answers = [pool.submit(self._ask, client, "runs")]
                wait_until((self._folder / "started-1").exists, "the first request runs")
                for number, request_id in enumerate(self.waiting, start=2):
                    answers.append(pool.submit(self._ask, client, request_id))
                    wait_until(lambda number=number: self._status()["num_requests"] == number, f"request {request_id} is there")
                wait_until(self._is_full, "the queue is full")
                self.refused = self._ask(client, "one-too-many")
                time.sleep(HELD_S)
            finally:
                (self._folder / "open").touch()
        for answer in answers:
            answer.result().raise_for_status()

    def _ask(self, client: httpx.Client, request_id: str) -> httpx.Response:
        body = oip.json_body({"x": np.ones(4, np.float32)}, id=request_id, parameters={"folder": str(self._folder)})
        return client.post("/v2/models/narrow/infer", content=body.content)

    def _status(self) -> Any:
        return get(self._server, "/status")

    def _is_full(self) -> bool:
        num_queued = self._status()["programs"][narrow_program.name]["num_queued"]
        return num_queued == narrow_program.options.max_queued_calls


def test_the_page_alone_says_that_a_queue_was_full(browser: "Browser", server: ServerProcess, tmp_path: Path) -> None:
    """A pause of the machine may become the main cause of one of the requests that waited, but not of all of them."""
    made = FullQueue(server, tmp_path)
    made.run()
    with tab(browser) as watched:
        show(watched, server, "requests?workflow=narrow&order=slowest&outcome=ok", ".rows-row")
        blamed = watched.page.locator(".rows-row").filter(has_text="in the queue").locator("a.row-link")
        blamed.first.wait_for()
        assert set(blamed.all_inner_texts()) <= set(made.waiting)
        blamed.first.click()
        worst = watched.page.locator(".worst").inner_text()
        assert re.search(r"the call of 'narrow_program' waited in the queue(, \d calls? before it)?, until a batch of 1", worst)

        assert made.refused.status_code == 503
        show(watched, server, "requests?workflow=narrow&outcome=failed", ".rows-row")
        watched.page.get_by_role("link", name="one-too-many").click()
        reason = watched.page.locator(".callout.bad").inner_text()
        assert "4 calls of program 'narrow_program' are waiting, the limit is 4" in reason
        assert oip.error_text(made.refused) in reason


def test_a_request_that_never_ran_is_shown_with_its_reason(browser: "Browser", server: ServerProcess) -> None:
    body = oip.json_body({"x": np.ones(5, np.float32)}, parameters={"folder": "none"})
    with client_of(server) as client:
        answer = client.post("/v2/models/narrow/infer", content=body.content)
    assert answer.status_code == 400
    with tab(browser) as watched:
        show(watched, server, "requests?outcome=failed", ".rows-row")
        watched.page.get_by_role("link", name=answer.json()["request_id"]).click()
        worst = watched.page.locator(".worst").inner_text()
        assert worst == f"refused before it ran: {oip.error_text(answer)}"
        assert "[5]" in worst
        watched.assert_accessible()
