"""The live page in a browser, against a server whose answers are made up."""

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tests.browser import Watched, chromium, tab
from tests.integration.page import made_up
from tests.integration.page.made_up_server import MadeUpServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

pytestmark = pytest.mark.together

VIEWS = ("", "programs", "programs/write", "requests", "requests/req-004242", "try", "jobs", "tenants", "scaling")
SIGNS = {
    "": ".g-node",
    "programs": "tbody tr",
    "programs/write": ".uplot",
    "requests": ".rows-row",
    "requests/req-004242": ".tl-span",
    "try": "fieldset",
    "jobs": "tbody tr",
    "tenants": "tbody tr",
    "scaling": "tbody tr",
}
"""What shows that a view is complete."""


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Runs one for all tests."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[MadeUpServer]:
    """Serves for all tests."""
    with MadeUpServer().running() as found:
        yield found


def show(watched: Watched, server: MadeUpServer, view: str = "") -> None:
    """Opens a view, and waits until it is complete."""
    watched.open(f"{server.url}/ui/#/{view}")
    watched.page.wait_for_selector(SIGNS[view])
    watched.page.wait_for_function("() => document.querySelector('.link-state').textContent.includes('live')")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1400, "dark"), (1400, "light")])
def test_every_view_is_readable_and_fits(browser: "Browser", server: MadeUpServer, width: int, scheme: Any) -> None:
    with tab(browser, width, 800, scheme) as watched:
        for view in VIEWS:
            show(watched, server, view)
            watched.assert_accessible()
        assert watched.hosts == {server.url.split("/")[2]}


def test_the_graph_is_that_of_the_workflow(browser: "Browser", server: MadeUpServer) -> None:
    graph = made_up.graph()
    with tab(browser) as watched:
        show(watched, server)
        nodes = watched.page.locator("[data-node]").evaluate_all("all => all.map(one => one.dataset.node)")
        edges = watched.page.locator("[data-edge]").evaluate_all(
            "all => all.map(one => [one.dataset.edge, +one.querySelector('path').getAttribute('stroke-width')])"
        )
        again = watched.page.locator("[data-label='assistant.py:52→write']").text_content() or ""
        last_line, first_label = watched.page.evaluate(
            "() => [Math.max, Math.min].map((best, at) => best(...[...document.querySelectorAll('.graph svg > *')]"
            ".flatMap((one, index) => (one.matches(['.g-edge', '.g-label'][at]) ? [index] : []))))"
        )
        assert last_line < first_label  # no line goes through a label
        table = watched.page.locator("details.alt", has_text="The graph as a table")
        table.locator("summary").click()
        table.locator("tbody tr").nth(len(graph["edges"]) - 1).wait_for()
        assert table.locator("tbody tr").count() == len(graph["edges"])
    assert set(nodes) == {node["id"] for node in graph["nodes"]}
    assert [name for name, *_ in edges] == [f"{edge['source']}→{edge['target']}" for edge in graph["edges"]]
    by_rate = sorted(zip((edge["per_s"] for edge in graph["edges"]), (width for _, width in edges), strict=True))
    assert [width for _, width in by_rate] == sorted(width for _, width in edges)
    assert by_rate[0][1] < by_rate[-1][1]
    assert "again 26" in again
    assert "10\u202f% guessed" in again


_RECORD_TEXTS = """window.texts = [];
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
      const chart = this.canvas.closest("[aria-label]")?.ariaLabel ?? "";
      window.texts.push([chart, text, parseFloat(this.font.match(/([\\d.]+)px/)[1])]);
      return draw.call(this, text, ...at);
    };"""


def test_axes_are_readable_on_a_dense_screen_and_replicas_are_whole(browser: "Browser", server: MadeUpServer) -> None:
    with tab(browser, 390, 844, device_scale_factor=3) as watched:
        watched.page.add_init_script(_RECORD_TEXTS)
        show(watched, server, "programs/write")
        watched.page.wait_for_function("() => window.texts.some(([chart]) => chart.startsWith('Replicas of write'))")
        texts = watched.page.evaluate("window.texts")
    assert min(size for _, _, size in texts) >= 3 * 12
    ticks = {text for chart, text, _ in texts if chart.startswith("Replicas of write") and ":" not in text}
    assert {"0", "1"} <= ticks
    assert all(tick.isdecimal() for tick in ticks), ticks


def test_lines_end_where_nothing_was_measured(browser: "Browser", server: MadeUpServer) -> None:
    with tab(browser) as watched:
        show(watched, server)
        times, row = watched.page.evaluate(
            """async () => {
              const page = document.querySelector("script[type=module]").src;
              const { withPauses } = await import(new URL("widgets/series.js", page));
              const cut = withPauses([1, 2, 3, 4, 100, 101, 102, 150], [[5, null, 6, 7, 8, 9, null, 10]], 8);
              return cut.map((column) => column.map((value) => (value === undefined ? "across" : value)));
            }"""
        )
    assert times == [1, 2, 3, 4, 52, 100, 101, 102, 126, 150]
    assert row == [5, "across", 6, 7, None, 8, 9, None, None, 10]


def test_causes_and_outcomes_are_whole_on_a_laptop(browser: "Browser", server: MadeUpServer) -> None:
    with tab(browser, 1280, 800) as watched:
        show(watched, server, "requests")
        cut = watched.page.locator(".rows-row .c-cause, .rows-row .c-outcome, .rows-row .tag").evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"
        )
        assert cut == []


def test_nothing_jumps(browser: "Browser", server: MadeUpServer) -> None:
    with tab(browser) as watched:
        watched.page.add_init_script(
            """window.shift = 0;
            const add = (list) => list.getEntries().forEach((entry) => (window.shift += entry.value));
            new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });"""
        )
        for view in ("", "requests", "requests/req-004242", "scaling"):
            watched.page.goto("about:blank")
            show(watched, server, view)
            watched.page.wait_for_timeout(1000)
            assert watched.page.evaluate("window.shift") < 0.1, view  # what counts as good


def test_a_graph_stays_where_it_is_while_figures_change(browser: "Browser", server: MadeUpServer) -> None:
    places = "[...document.querySelectorAll('.g-node rect, .g-node polygon')].map((one) => JSON.stringify(one.getBBox())).join()"
    figure = "document.querySelector('[data-figure=requests_per_s]').textContent"
    with tab(browser) as watched:
        show(watched, server)
        before, shown = watched.page.evaluate(f"[{places}, {figure}]")
        watched.page.wait_for_function(f"(shown) => {figure} !== shown", arg=shown)
        assert watched.page.evaluate(places) == before


def test_a_request_is_told_completely(browser: "Browser", server: MadeUpServer) -> None:
    request = made_up.detail("req-004242")
    assert request is not None
    with tab(browser) as watched:
        show(watched, server, "requests/req-004242")
        page = watched.page
        assert page.locator(".worst").inner_text() == request["diagnosis"][0]
        assert page.locator(".others li").all_inner_texts() == request["diagnosis"][1:]
        labels = page.locator(".tl-label[data-key]").evaluate_all("all => all.map(one => one.ariaLabel)")
        assert len(labels) == len(request["calls"]) + len(request["decisions"]) + len(request["parts"])
        assert sum(label.startswith("call of embed") for label in labels) == 4
        assert any(re.match(r"call of write, a guess, squashed, from 150.ms: ", label) for label in labels)
        assert any(label.startswith("decision assistant.py:41, harmless") for label in labels)

        page.locator(".tl-label[data-key=c0]").click()
        details = page.locator(".tl-item.open .batch")
        assert "Batch of 12" in details.inner_text()
        assert "the largest batch size was reached" in details.inner_text()
        details.locator("summary").click()
        assert details.locator("tbody tr").count() == 12
        details.get_by_role("link", name="req-004003").click()
        page.wait_for_selector("h1:has-text('req-004003')")


def test_one_of_something_has_no_plural(browser: "Browser", server: MadeUpServer) -> None:
    request: Any = made_up.detail("req-004242")
    batch: Any = request["batches"]["a1"]
    batch["num_guesses"], others = 1, [each for each in batch["requests"] if each["number"] != request["number"]]
    batch["requests"] = [each for each in batch["requests"] if each not in others[1:]]
    stages = {"stage": "queue", "slowest_ms": 9.0, "typical_ms": 1.0, "num_caused": 1}
    tail = {"num_slowest": 1, "num_requests": 1, "from_ms": 9.0, "median_ms": 9.0, "stages": [stages], "slowest": []}
    replies: dict[str, Any] = {"graph?": made_up.graph() | {"num_requests": 1}, "requests/req-004242": request, "tail?": tail}
    with tab(browser) as watched:
        page = watched.page
        for path, reply in replies.items():
            page.route(re.compile(f"/{re.escape(path)}"), _answering(reply))
        show(watched, server)
        assert "learned from 1 request;" in page.locator(".panel .note").first.inner_text()
        show(watched, server, "requests/req-004242")
        page.locator(".tl-label[data-key=c0]").click()
        details = page.locator(".tl-item.open .batch").inner_text()
        assert ", with 1 guess\n" in details
        assert "Shared with 1 other call\n" in details + "\n"
        show(watched, server, "requests")
        page.get_by_role("button", name="Slowest").click()
        panel = page.locator(".tail")
        panel.locator("[data-stage]").wait_for()
        assert "1 of 1 request took" in panel.locator(".note").inner_text()
        assert panel.locator("[data-stage] td").last.inner_text() == "1 request"
        shown = page.evaluate(
            """async () => {
              const { plural } = await import(new URL("format.js", document.baseURI));
              return [0, 1, 2, 1000].flatMap((num) => [plural(num, "guess"), plural(num, "call")]);
            }"""
        )
    assert shown == [
        "0 guesses", "0 calls", "1 guess", "1 call", "2 guesses", "2 calls", "1\u202f000 guesses", "1\u202f000 calls",
    ]  # fmt: skip


def _answering(reply: Any) -> "Callable[[Route], None]":
    return lambda route: route.fulfill(json=reply)


def test_a_request_that_is_not_kept_is_said_to_be_so(browser: "Browser", server: MadeUpServer) -> None:
    with tab(browser, allowed=["404"]) as watched:
        watched.open(f"{server.url}/ui/#/requests/other")
        watched.page.get_by_text("It is not kept").wait_for()


def test_bars_are_where_their_times_are(browser: "Browser", server: MadeUpServer) -> None:
    request = made_up.detail("req-004242")
    assert request is not None
    with tab(browser) as watched:
        show(watched, server, "requests/req-004242")
        spans = watched.page.locator(".tl-row:has([data-key=c0]) .tl-span").evaluate_all(
            "all => all.map(one => [one.title.split(':')[0], parseFloat(one.style.left), parseFloat(one.style.width)])"
        )
    call, batch, total = request["calls"][0], request["batches"]["a1"], request["duration_ms"]
    begins = [
        call["queued_ms"],
        batch["sent_ms"],
        batch["started_ms"],
        batch["started_ms"] + batch["gather_ms"],
        batch["ended_ms"],
    ]
    assert [left for _, left, _ in spans] == pytest.approx([100 * at / total for at in begins], abs=0.01)
    assert sum(width for *_, width in spans) == pytest.approx(100 * (call["ended_ms"] - call["asked_ms"]) / total, abs=0.01)


def test_everything_is_reached_by_keyboard(browser: "Browser", server: MadeUpServer) -> None:
    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim()"
    with tab(browser) as watched:
        show(watched, server, "requests/req-004242")
        page = watched.page
        page.keyboard.press("Tab")
        assert page.evaluate(focused) == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        for _ in range(40):
            page.keyboard.press("Tab")
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"nobody sees that the focus is on {page.evaluate(focused)!r}"
            if page.evaluate("document.activeElement.dataset.key") is not None:
                break
        keys = page.locator("[data-key]").evaluate_all("all => all.map(one => one.dataset.key)")
        assert page.evaluate("document.activeElement.dataset.key") == keys[0]
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.dataset.key") == keys[2]
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".tl-item.open")
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector(".tl-item.open", state="detached")
        page.keyboard.press("End")
        assert page.evaluate("document.activeElement.dataset.key") == keys[-1]


def test_a_lost_connection_is_said_and_comes_back(browser: "Browser") -> None:
    with MadeUpServer().running() as server, tab(browser, allowed=["Failed to load resource"]) as watched:
        show(watched, server)
        server.is_silent = True
        watched.page.get_by_role("alert").get_by_text("Connection lost").wait_for()
        server.is_silent = False
        watched.page.get_by_role("button", name="Now").click()
        watched.page.wait_for_selector("[role=alert]", state="detached")


def test_a_key_is_asked_for_kept_in_the_tab_and_sent(browser: "Browser") -> None:
    with MadeUpServer(key="secret").running() as server, tab(browser, allowed=["401"]) as watched:
        page = watched.page
        watched.open(f"{server.url}/ui/")
        page.get_by_label("API key", exact=True).wait_for()
        page.wait_for_timeout(1500)
        assert server.num_refused <= 2, "it asks again and again without a key"
        page.get_by_label("API key", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("an API key is needed").wait_for()
        page.get_by_label("API key", exact=True).fill("secret")
        page.keyboard.press("Enter")
        page.wait_for_selector(".g-node")
        assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        page.reload()
        page.wait_for_selector(".g-node")


def test_colours_are_chosen_and_remembered(browser: "Browser", server: MadeUpServer) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with tab(browser, scheme="light") as watched:
        show(watched, server)
        light = watched.page.evaluate(ground)
        watched.page.get_by_label("Colours").select_option("dark")
        dark = watched.page.evaluate(ground)
        watched.page.reload()
        assert watched.page.evaluate(ground) == dark != light


def test_tensors_are_the_bytes_that_numpy_makes(browser: "Browser", server: MadeUpServer) -> None:
    draw = np.random.default_rng(7)
    halves = np.concatenate([draw.normal(size=200), draw.normal(size=50) * 1e-6, [0.0, -0.0, 65504.0, 1e6, -1e6, 6e-8]])
    whole = draw.integers(0, 100, 20).astype(float)
    dtypes = {"FP16": np.float16, "BF16": ml_dtypes.bfloat16, "FP32": np.float32, "FP64": np.float64}
    cases = [(name, dtype, halves) for name, dtype in dtypes.items()]
    cases += [(name, getattr(np, name.lower()), whole) for name in ("INT8", "UINT8", "INT32", "INT64", "UINT64")]
    with tab(browser) as watched:
        watched.open(f"{server.url}/ui/#/jobs")
        for name, dtype, values in cases:
            made = watched.page.evaluate(
                """async ([name, values]) => {
                  const { toBytes } = await import(new URL("tensors.js", document.baseURI));
                  return [...toBytes(name, values)];
                }""",
                [name, values.tolist()],
            )
            with np.errstate(over="ignore"):
                wanted = values.astype(dtype)
            assert np.frombuffer(bytes(made), dtype).tolist() == wanted.tolist(), name
            if name in {"FP16", "BF16"}:
                read = watched.page.evaluate(
                    """async ([name, bytes]) => {
                      const { fromBytes } = await import(new URL("tensors.js", document.baseURI));
                      return fromBytes(name, Uint8Array.from(bytes));
                    }""",
                    [name, made],
                )
                assert read == wanted.astype(float).tolist(), name


def test_ten_thousand_requests_scroll_fluidly(browser: "Browser", server: MadeUpServer) -> None:
    with tab(browser) as watched:
        show(watched, server, "requests")
        page = watched.page
        num_rows = page.evaluate(
            """async (wanted) => {
              const count = () => Number(document.querySelector("[role=table]").ariaRowCount);
              while (count() < wanted) {
                scrollTo(0, document.documentElement.scrollHeight);
                await new Promise((resolve) => setTimeout(resolve, 10));
              }
              return count();
            }""",
            made_up.NUM_REQUESTS + 1,
        )
        assert num_rows == made_up.NUM_REQUESTS + 1
        assert page.locator(".rows-row").count() < 100, "rows out of sight are drawn"
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.get_by_role("link", name="req-000001").wait_for()
        frames, tasks = watched.trace_tasks(
            """async () => {
              const frames = [];
              let last = await new Promise(requestAnimationFrame);
              for (let index = 0; index < 120; index += 1) {
                scrollBy(0, -400);
                const now = await new Promise(requestAnimationFrame);
                frames.push(now - last);
                last = now;
              }
              return frames.sort((one, other) => one - other);
            }"""
        )
        figures = {
            "num": len(frames),
            "median": frames[len(frames) // 2],
            "p99": frames[-len(frames) // 100],
            "longest": frames[-1],
        }
        print(json.dumps({"frames_ms": figures, "cpu_per_frame_ms": sum(tasks) / len(frames), "longest_task_ms": tasks[-1]}))
