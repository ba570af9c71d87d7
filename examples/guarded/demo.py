"""Starts a server for the guarded generator, sends it held-out messages over HTTP, shows what came back, and stops it.

python examples/guarded/demo.py
"""

import http.client
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from guarded_texts import HARMFUL_RATIO, REFUSAL, Message, decode, draw_messages, encode

from dyorc.engine.story import Step, as_text
from dyorc.testing import serving

NUM_MESSAGES = 600
NUM_ALONE = 150
NUM_CLIENTS = 16


@dataclass(frozen=True)
class Reply:
    """One answer. `latency_s` is measured at the client."""

    continuation: bytes
    latency_s: float

    @property
    def is_refused(self) -> bool:
        return self.continuation == REFUSAL


class Client:
    """One kept-alive connection for each thread."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._local = threading.local()

    def send(self, message: Message) -> Reply:
        """Sends one message, shape [64] of UINT8, by the Open Inference Protocol."""
        started_s = time.perf_counter()
        body = self._infer(message, {})
        return Reply(bytes(body["outputs"][0]["data"]), time.perf_counter() - started_s)

    def explain(self, message: Message) -> list[Step]:
        """Sends one message; gives what the server did about it, step by step."""
        return self._infer(message, {"explain": True})["parameters"]["explain"]

    def _infer(self, message: Message, parameters: dict[str, bool]) -> dict[str, Any]:
        if not hasattr(self._local, "connection"):
            self._local.connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=60)
        codes = encode(message.text)
        tensor = {"name": "text", "shape": list(codes.shape), "datatype": "UINT8", "data": codes.tolist()}
        self._local.connection.request(
            "POST", "/v2/models/guarded/infer", json.dumps({"inputs": [tensor], "parameters": parameters})
        )
        response = self._local.connection.getresponse()
        body = json.loads(response.read())
        if response.status != 200:
            sys.exit(f"the server answered {response.status}: {body['error']}")
        return body


def main() -> None:
    """Runs the demonstration."""
    messages = draw_messages(NUM_MESSAGES, HARMFUL_RATIO, seed=4, is_held_out=True)
    workflow = Path(__file__).with_name("workflow.py")
    with serving(f"{workflow}:guarded", show=lambda line: print(f"  server | {line}", flush=True)) as url:
        client = Client(url)
        with ThreadPoolExecutor(NUM_CLIENTS) as pool:
            list(pool.map(client.send, messages[:64]))  # warm-up
            started_s = time.perf_counter()
            replies = list(pool.map(client.send, messages))
            elapsed_s = time.perf_counter() - started_s
        alone = [client.send(message) for message in messages[:NUM_ALONE]]
        story = client.explain(messages[0])
    _show_messages(messages, replies)
    _show_figures(messages, replies, alone, elapsed_s)
    print(f"\nwhat became of one more request:\n{as_text(story)}")


def _show_messages(messages: list[Message], replies: list[Reply]) -> None:
    """Four messages that were continued, three that were not, and all about which the guard was wrong."""
    pairs = list(zip(messages, replies, strict=True))
    passed = [pair for pair in pairs if not pair[0].harm and not pair[1].is_refused]
    stopped = [pair for pair in pairs if pair[0].harm and pair[1].is_refused]
    wrong = [pair for pair in pairs if bool(pair[0].harm) != pair[1].is_refused]
    print()
    for message, reply in (*passed[:4], *stopped[:3], *wrong):
        print(f"{message.text:>64} | {decode(reply.continuation)}")


def _show_figures(messages: list[Message], replies: list[Reply], alone: list[Reply], elapsed_s: float) -> None:
    harmful = [reply.is_refused for message, reply in zip(messages, replies, strict=True) if message.harm]
    harmless = [reply.is_refused for message, reply in zip(messages, replies, strict=True) if not message.harm]
    print(f"\n{len(replies)} held-out messages over HTTP: {sum(harmful)} of {len(harmful)} harmful ones refused, ", end="")
    print(f"{sum(harmless)} of {len(harmless)} harmless ones")
    print(f"latency with one client: {_quantiles([reply.latency_s for reply in alone])}")
    print(f"latency with {NUM_CLIENTS} clients: {_quantiles([reply.latency_s for reply in replies])}")
    print(f"throughput with {NUM_CLIENTS} clients: {len(replies) / elapsed_s:,.0f} requests/s")


def _quantiles(latencies_s: list[float]) -> str:
    p50, p99 = np.quantile(latencies_s, [0.5, 0.99]) * 1000
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


if __name__ == "__main__":
    main()
