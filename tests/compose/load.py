"""Clients that send requests to a cluster all the time, and note the outcome of each."""

import json
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.compose.engine import Engine
from tests.link_relay import enter_namespace

_PAUSE_S = 0.01
_REFUSED_PAUSE_S = 0.5
"""After a connection that was refused or cut, as clients and load balancers wait."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that has ended.

    Attributes:
        error: What went wrong; empty if nothing did.
    """

    started_s: float
    ended_s: float
    error: str


@dataclass(slots=True)
class Load:
    """What the clients have sent so far."""

    sent: list[Sent] = field(default_factory=list)

    def since(self, start_s: float) -> list[Sent]:
        """Returns the requests that ended after that moment."""
        return [one for one in list(self.sent) if one.ended_s > start_s]


@contextmanager
def load(
    urls: Sequence[str], model: str, body: Any, is_right: Callable[[Any], bool], num_clients: int, engine: Engine
) -> Generator[Load]:
    """Runs clients while entered; they share out the gateways among themselves.

    Args:
        urls: Of the gateways. A client whose gateway refuses its connection goes to the next one.
        is_right: Whether an answer is.
        engine: Runs the gateways. Requests have to end as its commands have.
    """
    found, stopping = Load(), threading.Event()
    content = json.dumps(body).encode()

    def run(number: int) -> None:
        if engine.namespace:
            descriptor = os.open(engine.namespace, os.O_RDONLY)
            enter_namespace(descriptor)
            os.close(descriptor)
        at = number
        with httpx.Client(trust_env=False) as client:
            while not stopping.is_set():
                started_s, error, before = time.monotonic(), "", at
                try:
                    answer = client.post(
                        f"{urls[at % len(urls)]}/v2/models/{model}/infer", content=content, timeout=engine.left_s
                    )
                    if answer.status_code != 200 or not is_right(answer.json()):
                        error = answer.text[:300]
                except httpx.HTTPError as failure:
                    error, at = repr(failure), at + 1
                found.sent.append(Sent(started_s, time.monotonic(), error))
                stopping.wait(_REFUSED_PAUSE_S if at > before else _PAUSE_S)

    clients = [threading.Thread(target=run, args=(number,)) for number in range(num_clients)]
    for client in clients:
        client.start()
    try:
        yield found
    finally:
        stopping.set()
        for client in clients:
            client.join()
