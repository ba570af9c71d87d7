"""Odd requests to `/v1`, `/run` and `/mcp`: good ones with something replaced, lost or new. None may make the server
fail: the worst answer is a refusal."""

import base64
import copy
import io
import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import PIL.Image
import pytest

import dyorc
from dyorc.config import GatewayConfig
from tests.effort import examples
from tests.integration.stack import Stack, running
from tests.workflows import openai_models, tensors, values

pytest.importorskip("mcp")


def deep(depth: int) -> str:
    """Returns a text that `encoded` replaces by lists and objects within each other, which Python's own encoder cannot write."""
    return f"deep {depth}"


def encoded(body: Any) -> bytes:
    """Returns a body as JSON."""
    return re.sub(
        r'"deep (\d+)"', lambda match: '{"a":[' * (int(match[1]) // 2) + "1" + "]}" * (int(match[1]) // 2), json.dumps(body)
    ).encode()


def picture_bytes(form: str) -> bytes:
    """Returns a picture of noise, whose bytes cannot be few."""
    buffer = io.BytesIO()
    PIL.Image.frombytes("RGB", (32, 32), random.Random(0).randbytes(32 * 32 * 3)).save(buffer, form)
    return buffer.getvalue()


def picture(num_bytes: int | None = None) -> str:
    """Returns a picture as base64, perhaps only its first bytes."""
    return base64.b64encode(picture_bytes("PNG")[:num_bytes]).decode()


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {"url": "data:,"}}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "one two three"},
]
TOOL = {"type": "function", "function": {"name": "f", "description": "F.", "parameters": {"type": "object"}}}
COMMON: dict[str, Any] = {
    "stream": False,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "top_p": 1,
    "n": 2,
    "stop": ["x"],
    "seed": 1,
    "user": "me",
    "service_tier": "auto",
    "priority": 2,
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": COMMON | {
        "model": "talker", "messages": MESSAGES, "max_tokens": 5, "max_completion_tokens": 5, "tools": [TOOL],
        "tool_choice": "auto", "response_format": {"type": "text"}, "metadata": {"a": "b"}, "logprobs": False,
    },
    "/v1/completions": COMMON | {"model": "writer", "prompt": ["a", "b"], "max_tokens": 2, "echo": False},
    "/v1/responses": {
        "model": "talker", "stream": False, "instructions": "Be brief.", "max_output_tokens": 3, "metadata": {"a": "b"},
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a b"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "sunny"}]},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {}}], "tool_choice": {"type": "function", "name": "f"},
        "previous_response_id": None, "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "temperature": 1,
    },
    "/v1/embeddings": {"model": "embedder", "input": ["a", "b"], "encoding_format": "float", "dimensions": 3, "user": "me"},
    "/v1/rerank": {"model": "ranker", "query": "a", "documents": ["b", {"text": "a"}], "top_n": 2, "return_documents": True},
    "/run/judge": {"text": "An invoice", "options": {"lower": False, "most": 3}},
    "/run/thumbnail": {"image": picture()},
    "/run/describe": {"image": picture(), "note": "x"},
    "/run/tell": {"text": "a b"},
    "/run/parcel": {"file": "aGVsbG8=", "factor": 2.0},
    "/run/affine": {"x": [1, 2, 3, 4], "index": [3, 0]},
    "/run/read": {"text": "An invoice", "options": {"lower": False, "most": 3}},
}  # fmt: skip
"""A good request of each kind."""
CALL = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/call",
    "params": {"name": "judge", "arguments": BODIES["/run/judge"], "_meta": {"progressToken": "p"}},
}  # fmt: skip
BODIES["/mcp"] = CALL

_ODD = [
    None, True, -1, 0, 3, 2**31, 2**63, 2**70, 0.5, -1e308, "", "x", "\0", "ä\U0001f600", "true", "1", [], {}, [1], [[]], [None],
    {"a": 1}, {"type": 3}, {"text": 1}, [{"text": [1]}], picture(200), picture()[:-8], "data:image/png;base64,AAAA", "=" * 9,
    *map(deep, (30, 198, 204, 256, 300, 600, 900, 1000)),
]  # fmt: skip
_FORMS = [
    (b"text/plain", b"An invoice"),
    (b"image/png", base64.b64decode(picture())),
    (b"application/x-www-form-urlencoded", b"text=a&note=b&image=" + picture().encode()),
    (b"multipart/form-data; boundary=b", b'--b\r\ncontent-disposition: form-data; name="text"\r\n\r\nAn invoice\r\n--b--\r\n'),
    (
        b"multipart/form-data; boundary=b",
        b'--b\r\ncontent-disposition: form-data; name="image"; filename="i"\r\n\r\n%b\r\n--b--\r\n' % base64.b64decode(picture()),
    ),
]
_QUERIES = ["", "?text=a", "?side=%ff", "?%00", "?factor=1e400", "?factor=nan", "?note=x&note=y"]
_HEADERS = {
    b"x-priority": [b"1", b"-1", b"x", b"99999999999"], b"request-timeout": [b"60", b"x", b"1e5"],
    b"x-request-id": [b"me", b"\xff"],
    b"traceparent": [b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"x", b"\xff"], b"accept": [b"text/event-stream", b"\xff"],
    b"content-type": [b"", b"\xff", b"text/plain", b"image/png", b"multipart/form-data; boundary=" + b"b" * 300],
    b"content-encoding": [b"gzip", b"br", b"identity"], b"inference-header-content-length": [b"5", b"x", b"0"],
}  # fmt: skip


def places_in(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the paths to everything within a value."""
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, each in inner for place in ((*before, key), *places_in(each, (*before, key)))]


def changed(body: Any, place: Sequence[Any], odd: Any, how: str) -> Any:
    """Returns a body in which the value at a place is another one, or gone, or which has a new field beside it."""
    body = copy.deepcopy(body)
    inner = body
    for key in place[:-1]:
        inner = inner[key]
    if how == "lost":
        del inner[place[-1]]
    elif how == "new" and isinstance(inner, dict):
        inner["odd"] = odd
    else:
        inner[place[-1]] = odd
    return body


def odd_body(rng: random.Random, path: str) -> bytes:
    """Draws a body of JSON."""
    body = BODIES[path] | ({"stream": True} if path.startswith("/v1") and rng.random() < 0.5 else {})
    for _ in range(rng.choice([1, 1, 2])):
        if places := places_in(body):
            body = changed(body, rng.choice(places), rng.choice(_ODD), rng.choice(["other", "other", "lost", "new"]))
    return encoded(body)


def damaged(rng: random.Random, body: bytes) -> bytes:
    """Returns the bytes with some replaced, gone, or there twice."""
    result = bytearray(body)
    for _ in range(rng.choice([0, 1, 1, 3, 10])):
        at = rng.randrange(len(result) + 1)
        match rng.randrange(4):
            case 0:
                del result[at:]
            case 1:
                result[at : at + 1] = rng.randbytes(1)
            case 2:
                del result[at : at + rng.randrange(9)]
            case _:
                result[at:at] = result[at : at + 20]
    return bytes(result)


def check(answer: httpx.Response, sent: object) -> None:
    """Checks that the server has not failed, and that it refuses in the form of its route."""
    assert answer.status_code < 500, (answer.text, sent)
    for failure in ("the server failed", "internal error", "-32603"):
        assert failure not in answer.text, (answer.text, sent)
    path = answer.request.url.path
    if answer.status_code >= 400 and path.startswith("/v1"):
        assert answer.json()["error"]["type"] == "invalid_request_error", (answer.text, sent)
    if answer.status_code >= 400 and path.startswith("/run"):
        assert answer.json()["error"], sent


@dyorc.program(batched=False)
def paint(text: str) -> PIL.Image.Image:
    return text.encode()  # type: ignore[return-value]  # no picture


@dyorc.workflow
async def broken(text: str) -> PIL.Image.Image:
    return values.shrink(paint(text), 4)


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    targets = [openai_models.talker, openai_models.writer, openai_models.embedder, openai_models.ranker, tensors.affine,
               values.judge, values.thumbnail, values.describe, values.tell, values.parcel, broken]  # fmt: skip
    async with running(targets, gateway=GatewayConfig(port=0, drain_timeout_s=1, mcp=True)) as started:
        yield started


@pytest.mark.parametrize("path", sorted(BODIES))
async def test_odd_json(stack: Stack, path: str) -> None:
    rng = random.Random(path)
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"} if path == "/mcp" else {}
    for _ in range(examples(400)):
        body = odd_body(rng, path)
        check(await stack.client.post(path, content=body, headers=headers), body)


@pytest.mark.parametrize("path", sorted(BODIES))
async def test_odd_bytes_and_headers(stack: Stack, path: str) -> None:
    rng = random.Random(path)
    for _ in range(examples(400)):
        kind, body = rng.choice([*_FORMS, (b"application/json", encoded(BODIES[path]))])
        headers = {b"content-type": kind}
        headers |= {name: rng.choice(values) for name, values in _HEADERS.items() if rng.random() < 0.15}
        if path == "/mcp":
            headers[b"accept"] = b"application/json, text/event-stream"
        body = damaged(rng, body)
        answer = await stack.client.post(path + rng.choice(_QUERIES), content=body, headers=list(headers.items()))
        check(answer, (headers, body))


async def test_odd_paths(stack: Stack) -> None:
    for name in ("%00", "%ff", "", "..%2f", "a/b", "x" * 5000, "talker%20"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            answer = await stack.client.request(method, f"/v1/models/{name}")
            assert answer.status_code < 500, (method, name)


@pytest.mark.parametrize("depth", [198, 300, 600, 900, 1000, 100_000])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank"])
async def test_deep_json_is_refused_where_a_workflow_could_not_read_it(stack: Stack, path: str, depth: int) -> None:
    body = encoded(BODIES[path] | {"new": deep(depth)})
    answer = await stack.client.post(path, content=body)
    assert answer.status_code == (200 if depth < 200 else 400), answer.text
    if depth >= 200:
        assert "nested more than 200 levels deep" in answer.json()["error"]["message"]


@pytest.mark.parametrize("size", [50, 200, 600])
@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
async def test_a_truncated_picture_is_the_clients_fault(stack: Stack, form: str, size: int) -> None:
    whole = picture_bytes(form)
    part = whole[:size]
    with PIL.Image.open(io.BytesIO(whole)) as image:
        assert image.load() is not None
    text = base64.b64encode(part).decode()
    value = {"name": "image", "shape": [], "datatype": "BYTES"}
    answers = [
        await stack.client.post("/run/thumbnail", content=part, headers={"content-type": f"image/{form.lower()}"}),
        await stack.client.post("/run/thumbnail", json={"image": text}),
        await stack.client.post("/run/shrink", json={"image": text}),
        await stack.client.post("/run/thumbnail", files={"image": part}),
        await stack.client.post(
            "/v2/models/thumbnail/infer",
            content=(head := json.dumps({"inputs": [value | {"parameters": {"binary_data_size": len(part) + 4}}]}).encode())
            + len(part).to_bytes(4, "little") + part,
            headers={"inference-header-content-length": str(len(head))},
        ),
    ]  # fmt: skip
    for answer in answers:
        assert answer.status_code == 400, answer.text
        assert answer.json()["code"] == "invalid_input"
        assert "'image'" in answer.json()["error"]


async def test_a_program_that_makes_a_broken_picture_is_to_blame_itself(stack: Stack) -> None:
    answer = await stack.client.post("/run/broken", json={"text": "x"})
    assert (answer.status_code, answer.json()["code"]) == (500, "program")
    assert "no image" in answer.json()["error"]


async def test_a_value_that_does_not_fit_a_program_served_by_itself(stack: Stack) -> None:
    answer = await stack.client.post("/run/read", json={"text": "x", "options": {"most": 0}})
    assert answer.status_code == 400
    assert "most: Input should be greater than or equal to 1" in answer.json()["error"]


async def test_the_largest_picture_is_a_setting() -> None:
    gateway = GatewayConfig(port=0, drain_timeout_s=1, max_image_pixels=32 * 32 - 1)
    async with running([values.thumbnail], gateway=gateway) as small:
        answer = await small.client.post("/run/thumbnail", json={"image": picture()})
        assert answer.status_code == 400
        assert "32 x 32 pixels, expected at most 1023" in answer.json()["error"]
