"""A FastAPI application beside DyOrc's routes, and the models that it calls."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import BackgroundTasks, FastAPI, Request, WebSocket
from fastapi.responses import StreamingResponse
from jaxtyping import Float
from numpy import ndarray
from starlette.types import Receive, Scope, Send

import dyorc

NOTES = os.environ.get("OWN_APPLICATION_NOTES", "")
"""A file for what happens apart from answers."""


def note(text: str) -> None:
    """Notes what happened."""
    if NOTES:
        with Path(NOTES).open("a") as file:
            file.write(f"{text}\n")


@dyorc.program
def double(x: Float[ndarray, "batch n"]) -> Float[ndarray, "batch n"]:
    if (x < 0).any():
        raise ValueError("a number is negative")
    return 2 * x


@dyorc.workflow
async def twice(x: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
    return double(double(x))


@dyorc.program(batched=False)
def split(text: str) -> list[str]:
    return text.split()


@dyorc.workflow
async def spell(text: str) -> AsyncIterator[str]:
    for word in await split(text):
        yield word


@dyorc.program(batched=False)
def add(text: str, more: dict[str, int]) -> dict[str, int]:
    return {name: number + len(text.split()) for name, number in more.items()}


@dyorc.workflow
async def count(text: str, more: dict[str, int]) -> dict[str, int]:
    return add(text, more)


@dyorc.program(batched=False)
async def sleep(seconds: float) -> float:
    note("sleeps")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return seconds


@dyorc.workflow
async def wait(seconds: float) -> float:
    return sleep(seconds)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    note("starts")
    yield {"greeting": "hello"}
    note("stops")


api = FastAPI(lifespan=lifespan, docs_url="/api/docs", openapi_url="/api/openapi.json")


@api.get("/")
async def home(request: Request) -> str:
    return request.state.greeting


@api.post("/double")
async def run_double(x: list[float]) -> list[float]:
    return (await dyorc.call(twice, np.float32(x))).tolist()


@api.post("/by-name")
async def run_by_name(x: list[float]) -> list[float]:
    return (await dyorc.call("twice", x=np.float32(x))).tolist()


@api.get("/words")
async def words(text: str) -> StreamingResponse:
    async def parts() -> AsyncIterator[str]:
        async for word in dyorc.stream(spell, text=text):
            yield f"{word}\n"

    return StreamingResponse(parts(), media_type="text/plain")


@api.get("/wrong-way")
async def wrong_way() -> str:
    return await dyorc.call(spell, text="a b")


@api.get("/wait")
async def run_wait(seconds: float) -> float:
    return await dyorc.call(wait, seconds)


@api.get("/wait-in-a-group")
async def run_wait_in_a_group(seconds: float) -> float:
    async with asyncio.TaskGroup() as group:
        call = group.create_task(dyorc.call(wait, seconds))
    return call.result()


@api.get("/group-with-a-bug")
async def group_with_a_bug() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(dyorc.call(twice, np.float32([-1])))
        group.create_task(fail_after(asyncio.Event()))


async def fail_after(event: asyncio.Event) -> None:
    try:
        await event.wait()
    finally:
        raise KeyError("a bug")


@api.get("/wait-streaming")
async def wait_streaming(seconds: float) -> StreamingResponse:
    async def parts() -> AsyncIterator[str]:
        yield "first\n"
        yield str(await dyorc.call(wait, seconds))

    return StreamingResponse(parts(), media_type="text/plain")


@api.get("/later")
async def later(tasks: BackgroundTasks) -> str:
    async def go_on() -> None:
        note(f"later {await dyorc.call(wait, 0.2)}")

    tasks.add_task(go_on)
    return "soon"


@api.get("/count-by-name")
async def count_by_name(text: str) -> list[dict[str, int]]:
    return [await dyorc.call("count", text=text, more={"words": 1}), await dyorc.call(count, text=text, more={"words": 1})]


@api.get("/from-a-thread")
def from_a_thread(x: float) -> list[float]:
    return asyncio.run(dyorc.call(twice, np.float32([x]))).tolist()


@api.get("/late-failure")
async def late_failure() -> StreamingResponse:
    async def parts() -> AsyncIterator[str]:
        yield str((await dyorc.call(twice, np.float32([-1]))).tolist())

    return StreamingResponse(parts(), media_type="text/plain")


@api.get("/leaves")
async def leaves(kind: str) -> None:
    raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "cancelled": asyncio.CancelledError()}[kind]


@api.get("/wrong-call")
async def wrong_call() -> str:
    try:
        return await dyorc.call(len, "x")  # pyright: ignore[reportArgumentType] -- a mistake that people make
    except TypeError as error:
        return str(error)


@api.get("/raise")
async def fail() -> str:
    raise ValueError("the handler has failed")


@api.get("/headers")
async def headers(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name.startswith("x-")}


@api.websocket("/talk")
async def talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(f"{socket.state.greeting} {await socket.receive_text()}")
    await socket.close()


@api.get("/status")
async def hidden() -> str:
    return "nobody sees this: DyOrc has this route"


async def odd(scope: Scope, receive: Receive, send: Send) -> None:
    """Breaks the rules of ASGI, as the path says."""
    assert scope["type"] == "http"
    start, body = {"type": "http.response.start", "status": 200, "headers": []}, {"type": "http.response.body", "body": b"x"}
    messages: dict[str, list[Any]] = {
        "/nothing": [],
        "/body-first": [body, start],
        "/twice": [start, start, body],
        "/line-break": [{**start, "headers": [(b"x", b"a\r\nb: c")]}, body],
        "/status": [{**start, "status": 99}, body],
    }
    for message in messages[scope["path"].removeprefix("/odd")]:
        await send(message)


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application of no framework, without a lifespan."""
    assert scope["type"] == "http"
    answer = await dyorc.call(twice, np.float32([float(scope["query_string"] or 1)]))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": str(answer.tolist()).encode()})


@contextlib.asynccontextmanager
async def failing(app: FastAPI) -> AsyncIterator[None]:
    raise RuntimeError("the database is gone")
    yield


broken = FastAPI(lifespan=failing)


@contextlib.asynccontextmanager
async def failing_at_the_end(app: FastAPI) -> AsyncIterator[None]:
    yield
    raise ValueError("the database stays open")


stuck = FastAPI(lifespan=failing_at_the_end)


async def stuck_bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Fails at the end of its lifespan, and does not say so in the standard's way."""
    assert scope["type"] == "lifespan"
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    raise ValueError("the database stays open")


def make_application() -> FastAPI:
    return FastAPI()


server = dyorc.asgi(twice, spell, wait, count, app=api)
odd_server = dyorc.asgi(twice, app=odd)
bare_server = dyorc.asgi(twice, app=bare)
broken_server = dyorc.asgi(twice, app=broken)

models = dyorc.asgi(twice, spell, wait)
with_lifespan = FastAPI(lifespan=models.lifespan)
with_lifespan.mount("/models", models)
without_lifespan = FastAPI()
without_lifespan.mount("/deep/v2", dyorc.asgi(twice))
