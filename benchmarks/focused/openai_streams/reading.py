"""Clients that read streams of server-sent events side by side in one process. They parse next to nothing: they look for the
beginnings of words, so that what differs between the forms of a stream is the server's work.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

from benchmarks.focused.openai_streams.hashes import WORD_START
from benchmarks.serving import Address, BenchmarkError

_WORD = f'"{WORD_START}'.encode()
_END = b"\r\n0\r\n\r\n"
_READ_BYTES = 2**18

FORMS = ("openai", "run", "generate")
"""OpenAI's, ``POST /run`` with events, and ``generate_stream``."""


@dataclass(slots=True)
class StreamsRead:
    """What the clients saw.

    Attributes:
        first_ns: From each request to its first word, in nanoseconds.
        num_words: Words that came, all of whose streams were whole.
        elapsed_s: From the first request to the end of the last stream.
    """

    first_ns: list[int] = field(default_factory=list[int])
    num_words: int = 0
    elapsed_s: float = 0.0


def request_of(form: str, address: Address, num_words: int) -> bytes:
    """Returns a request in one of the forms, head and body."""
    chat = {"model": "hashes", "messages": [{"role": "user", "content": "go on"}], "max_tokens": num_words, "stream": True}
    path, body, accept = {
        "openai": ("/v1/chat/completions", chat, "*/*"),
        "run": ("/run/hashes", {"request": chat}, "text/event-stream"),
        "generate": ("/v2/models/hashes/generate_stream", {"request": json.dumps(chat)}, "*/*"),
    }[form]
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {address.host}\r\naccept: {accept}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def read_streams(address: Address, form: str, *, num_clients: int, num_words: int, duration_s: float) -> StreamsRead:
    """Lets clients ask again and again until the time is up, each on its own connection.

    Raises:
        BenchmarkError: If a stream is not whole.
    """
    streams, request = StreamsRead(), request_of(form, address, num_words)
    started_s = time.perf_counter()
    clients = [_client(address, request, num_words, started_s + duration_s, streams) for _ in range(num_clients)]
    await asyncio.gather(*clients)
    streams.elapsed_s = time.perf_counter() - started_s
    return streams


async def _client(address: Address, request: bytes, num_words: int, until_s: float, streams: StreamsRead) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.http_port, limit=_READ_BYTES)
    try:
        while time.perf_counter() < until_s:
            asked_ns = time.perf_counter_ns()
            writer.write(request)
            came, first_ns = b"", 0
            while not came.endswith(_END):
                piece = await reader.read(_READ_BYTES)
                if not piece:
                    break
                came += piece
                if not first_ns and _WORD in came:
                    first_ns = time.perf_counter_ns()
            if came.count(_WORD) != num_words:
                raise BenchmarkError(f"a stream has {came.count(_WORD)} words, expected {num_words}: {came[:200]!r}")
            streams.first_ns.append(first_ns - asked_ns)
            streams.num_words += num_words
    finally:
        writer.close()
