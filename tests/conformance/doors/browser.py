"""A browser: pages of other origins call the server by `fetch`, one of them allowed by `gateway.cors_origins`, one not."""

import functools
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser import FLAGS
from tests.conformance.doors.doors import Addresses, Door, run_checks
from tests.conformance.rows import Row, expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

_NAME = "Chromium: a page of another origin"
_COMMANDS = ("chromium", "chromium-browser")
_TIMEOUT_MS = 60_000
_HELPERS = """
window.url = %r;
window.ask = async (path, options) => {
  const answer = await fetch(url + path, { method: "POST", ...options });
  return { status: answer.status, text: await answer.text(), id: answer.headers.get("x-request-id") };
};
window.picture = async (side) => {
  const canvas = new OffscreenCanvas(side, side);
  canvas.getContext("2d").fillRect(0, 0, side, side);
  return canvas.convertToBlob({ type: "image/png" });
};
window.sides = async (answer) => {
  const image = await createImageBitmap(await answer.blob());
  return [image.width, image.height];
};
null
"""


def _find_missing() -> str:
    lacks = [] if any(map(shutil.which, _COMMANDS)) else ["chromium"]
    return ", ".join(lacks + ([] if importlib.util.find_spec("playwright") else ["playwright"]))


def _json(page: "Page") -> None:
    """A JSON type needs a preflight."""
    answer = page.evaluate(
        """ask("/run/words", {
          headers: { "content-type": "application/json", "x-request-id": "mine" }, body: '{"text": "To be"}',
        })"""
    )
    expect(answer, {"status": 200, "text": '{"words":["to","be"],"total":2}', "id": "mine"}, "the answer")


def _simple(page: "Page") -> None:
    """What a plain form could send needs none."""
    answer = page.evaluate("""ask("/run/words", { body: new URLSearchParams({ text: "To be" }) })""")
    expect((answer["status"], answer["text"]), (200, '{"words":["to","be"],"total":2}'), "the answer")


def _picture(page: "Page") -> None:
    answer = page.evaluate(
        """(async () => sides(await fetch(url + "/run/thumbnail?side=12", { method: "POST", body: await picture(40) })))()"""
    )
    expect(answer, [12, 12], "the size")


def _form(page: "Page") -> None:
    answer = page.evaluate(
        """(async () => {
          const body = new FormData();
          body.set("image", await picture(40), "drawn.png");
          body.set("side", "9");
          return sides(await fetch(url + "/run/thumbnail", { method: "POST", body }));
        })()"""
    )
    expect(answer, [9, 9], "the size")


def _events(page: "Page") -> None:
    """They are read as they come."""
    answer = page.evaluate(
        """(async () => {
          const headers = { accept: "text/event-stream", "content-type": "application/json" };
          const answer = await fetch(url + "/run/spell", { method: "POST", headers, body: '{"text": "to be or"}' });
          let text = "";
          const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
          for (let part; !(part = await reader.read()).done; ) text += part.value;
          const events = text.split("\\n\\n").filter(Boolean);
          return [answer.headers.get("content-type"), events.map((event) => JSON.parse(event.slice(6)))];
        })()"""
    )
    expect(answer[0].split(";")[0], "text/event-stream", "the type")
    expect(answer[1], ["to", "be", "or"], "the events")


def _error(page: "Page") -> None:
    """The page may read errors, too."""
    answer = page.evaluate(
        """(async () => {
          const answer = await ask("/run/words", { headers: { "content-type": "application/json" }, body: '{"text": 3}' });
          return [answer.status, JSON.parse(answer.text).code, (await ask("/run/nothing", { body: "{}" })).status];
        })()"""
    )
    expect(answer, [400, "invalid_input", 404], "the answers")


def _tensors(page: "Page") -> None:
    """The page may read the header with the length of the JSON."""
    answer = page.evaluate(
        """(async () => {
          const raw = new Float32Array([1, 2, 3]);
          const inputs = [{ name: "x", datatype: "FP32", shape: [3], parameters: { binary_data_size: 12 } }];
          const head = new TextEncoder().encode(JSON.stringify({ inputs, parameters: { binary_data_output: true } }));
          const headers = { "inference-header-content-length": head.length, "content-type": "application/octet-stream" };
          const answer = await fetch(url + "/v2/models/behave/infer", { method: "POST", headers, body: new Blob([head, raw]) });
          const length = Number(answer.headers.get("inference-header-content-length"));
          return Array.from(new Float32Array((await answer.arrayBuffer()).slice(length)));
        })()"""
    )
    expect(answer, [1, 2, 3], "the data")


def _refused(page: "Page") -> None:
    """The browser keeps answers from a page of another origin, after a preflight and without one."""
    for headers in ("{}", '{ "content-type": "application/json" }'):
        answer = page.evaluate(
            f"""ask("/run/words", {{ headers: {headers}, body: '{{"text": "To be"}}' }})
              .then(() => "shown", (error) => error.name)"""
        )
        expect(answer, "TypeError", f"what the page sees with {headers}")


_ALLOWED: dict[str, Callable[["Page"], None]] = {
    "JSON to /run, after a preflight; it reads x-request-id": _json,
    "a coded form to /run, without a preflight": _simple,
    "a picture to /run": _picture,
    "a form with a picture to /run": _form,
    "events of /run": _events,
    "errors": _error,
    "binary tensors": _tensors,
}


def _check(addresses: Addresses, folder: Path) -> Iterator[Row]:
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, _COMMANDS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            for origin, checks in (
                (addresses.allowed_page, _ALLOWED),
                (addresses.refused_page, {"an origin that is not allowed sees nothing": _refused}),
            ):
                page = browser.new_page()
                page.set_default_timeout(_TIMEOUT_MS)
                page.goto(origin)
                page.evaluate(_HELPERS % addresses.http)
                yield from run_checks(_NAME, {name: functools.partial(check, page) for name, check in checks.items()})
        finally:
            browser.close()


DOOR = Door(_NAME, _find_missing, _check)
