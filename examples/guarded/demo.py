"""Starts a server for the guarded generator, sends it held-out messages over HTTP, shows the answers, and stops it.

    python examples/guarded/demo.py [--in-process]

Its options are those of `dyorc serve`.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from guarded_texts import HARMFUL_RATIO, REFUSAL, Message, decode, draw_messages, encode

import dyorc
from dyorc.engine.trace_text import as_text
from dyorc.testing import serving

NUM_MESSAGES = 600
NUM_ALONE = 150
NUM_CLIENTS = 16
NUM_PIECES = 4


@dataclass(frozen=True)
class Reply:
    """One answer. `latency_s` is measured at the client."""

    continuation: bytes
    latency_s: float

    @property
    def is_refused(self) -> bool:
        return self.continuation == REFUSAL


def send(client: dyorc.Client, message: Message) -> Reply:
    """Sends one message, shape [64] of UINT8."""
    started_s = time.perf_counter()
    continuation = client.infer("guarded", text=encode(message.text))
    return Reply(continuation.tobytes(), time.perf_counter() - started_s)


def main() -> None:
    """Runs the demonstration."""
    messages = draw_messages(NUM_MESSAGES, HARMFUL_RATIO, seed=4, is_held_out=True)
    workflow = Path(__file__).with_name("workflow.py")
    targets = (f"{workflow}:guarded", f"{workflow}:guarded_story")
    with (
        serving(*targets, *sys.argv[1:], show=lambda line: print(f"  server | {line}", flush=True)) as server,
        dyorc.Client(server.url) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as pool,
    ):
        ask = partial(send, client)
        list(pool.map(ask, messages[:64]))  # warm-up
        started_s = time.perf_counter()
        replies = list(pool.map(ask, messages))
        elapsed_s = time.perf_counter() - started_s
        alone = [ask(message) for message in messages[:NUM_ALONE]]
        explained = client.answer("guarded", text=encode(messages[0].text), explain=True)
        _show_story(client, messages[0])
    _show_messages(messages, replies)
    _show_figures(messages, replies, alone, elapsed_s)
    print(f"\nwhat became of one more request:\n{as_text(explained.explain)}")


def _show_messages(messages: list[Message], replies: list[Reply]) -> None:
    """Shows four messages that were continued, three that were not, and all that the guard judged wrongly."""
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


def _show_story(client: dyorc.Client, message: Message) -> None:
    """Shows a message's continuation, piece by piece as it arrives."""
    print(f"\na story, piece by piece:\n{message.text}", end="", flush=True)
    for piece in client.stream("guarded_story", text=encode(message.text), num_pieces=NUM_PIECES):
        print(f"|{decode(piece.tobytes())}", end="", flush=True)
    print()


def _quantiles(latencies_s: list[float]) -> str:
    p50, p99 = np.quantile(latencies_s, [0.5, 0.99]) * 1000
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


if __name__ == "__main__":
    main()
