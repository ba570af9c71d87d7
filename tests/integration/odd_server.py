"""An HTTP server whose answers are up to the test: late, wrong, refused, or missing."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from loadgen.pool import Tensors
from loadgen.targets.layout import oip_request

ANSWER: Tensors = {"y": np.arange(4, dtype=np.float32)}
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        number: From 0, in the order in which they came.
    """

    number: int
    head: bytes
    body: bytes


Answering: TypeAlias = Callable[[Asked], Awaitable[bytes | None]]
"""Returns the answer's bytes; None closes the connection."""


def reply(tensors: Tensors = ANSWER) -> bytes:
    """Returns an answer of the protocol. Outputs have the same form as inputs."""
    _, headers, body = oip_request("odd", tensors)
    (json_length,) = (value for name, value in headers if name.startswith("inference"))
    body = body.replace(b'"inputs"', b'"outputs"')
    return (
        f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\ninference-header-content-length: {int(json_length) + 1}\r\n\r\n"
    ).encode() + body


def refusal(status: int, body: bytes) -> bytes:
    """Returns an answer that is an error."""
    return f"HTTP/1.1 {status} No\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class OddServer:
    """What it was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list[Asked])


@contextlib.asynccontextmanager
async def odd_server(answering: Answering) -> AsyncGenerator[OddServer]:
    """Serves until it is left."""
    loop = asyncio.get_running_loop()
    found = OddServer()
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                asked = Asked(len(found.asked), head, body)
                found.asked.append(asked)
                answer = await answering(asked)
                if answer is None:
                    return
                writer.write(answer)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(converse(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    found.url = f"http://{host}:{port}"
    try:
        yield found
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
