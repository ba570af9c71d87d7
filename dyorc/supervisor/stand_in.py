"""Answers in place of a cell that cannot start: every HTTP request gets 503 and the reason. Only the standard library."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator

_READ_TIMEOUT_S = 2.0
_CHUNK_BYTES = 65_536


@contextlib.asynccontextmanager
async def respond_with_error(listener: socket.socket, text: str) -> AsyncGenerator[None]:
    """Answers while entered.

    Args:
        listener: A listening socket, which stays open.
        text: Why nothing works.
    """
    # Only a person can change it, so clients need not try again.
    body = json.dumps({"error": text, "code": "not_ready", "retryable": False}).encode()
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    answer = f"{head}Connection: close\r\n\r\n".encode() + body

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_READ_TIMEOUT_S):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                writer.write_eof()
                while await reader.read(_CHUNK_BYTES):  # closing on a client that still writes would lose the answer
                    pass
        writer.close()

    server = await asyncio.start_server(handle, sock=listener.dup())
    try:
        yield
    finally:
        server.close()
