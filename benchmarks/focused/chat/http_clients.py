"""Asks questions over HTTP: DyOrc with the Open Inference Protocol, in parts; peers with the question as the whole body."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.focused.chat.load import Asked
from loadgen.targets.connections import Connections
from loadgen.targets.failures import http_failure
from loadgen.targets.layout import http_post, oip_parts, oip_request
from loadgen.targets.part_reading import FrameWatch


class StreamClient:
    """Reads answers of a DyOrc workflow token by token."""

    def __init__(self, connections: Connections, url: str, workflow: str) -> None:
        self._connections = connections
        self._url = url
        self._workflow = workflow

    async def ask(self, asked: Asked) -> None:
        """Asks a question and notes when each part comes."""
        question = np.empty((), object)
        question[()] = asked.turn.question
        path, headers, body = oip_request(self._workflow, {"question": question}, is_streamed=True)
        watch = FrameWatch(lambda: asked.part_ns.append(time.monotonic_ns()))
        status, _, answer = await self._connections.exchange(http_post(self._url, path, headers, {}, body), watch.feed)
        if status != 200:
            raise http_failure(status, answer)
        watch.check()
        asked.done_ns = time.monotonic_ns()
        asked.text = b"".join(bytes(next(iter(part.values())).item()) for part in oip_parts(answer))


class WholeClient:
    """Waits for whole answers."""

    def __init__(self, connections: Connections, url: str, path: str) -> None:
        self._connections = connections
        self._url = url
        self._path = path

    async def ask(self, asked: Asked) -> None:
        """Asks a question and waits for the answer."""
        request = http_post(self._url, self._path, (), {}, asked.turn.question)
        status, _, answer = await self._connections.exchange(request)
        if status != 200:
            raise http_failure(status, answer)
        asked.text, asked.done_ns = answer, time.monotonic_ns()
