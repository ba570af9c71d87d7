"""Starts a server for the router and its experts, sends it held-out questions over HTTP, shows what came back, and stops it.

    python examples/router/demo.py [--in-process]

Its options are those of `dyorc serve`.
"""

import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from router_texts import TOPICS, Question, draw_questions

import dyorc
from dyorc.testing import serving

NUM_CLIENTS = 16
NUM_ALONE = 100


@dataclass(frozen=True)
class Reply:
    """One answer. `latency_s` is measured at the client."""

    topic: str
    intent: str
    probability: float
    latency_s: float


def ask(client: dyorc.Client, question: Question) -> Reply:
    """Sends one text, of BYTES without dimensions."""
    started_s = time.perf_counter()
    outputs = client.infer("answer", text=question.text)
    latency_s = time.perf_counter() - started_s
    topic, intent = (outputs[name].item().decode() for name in ("topic", "intent"))
    return Reply(topic, intent, float(outputs["probability"]), latency_s)


def main() -> None:
    """Runs the demonstration."""
    questions = draw_questions(8, seed=2, is_held_out=True)
    workflow = Path(__file__).with_name("workflow.py")
    with (
        serving(f"{workflow}:answer", *sys.argv[1:], show=lambda line: print(f"  server | {line}", flush=True)) as server,
        dyorc.Client(server.url) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as pool,
    ):
        send = partial(ask, client)
        list(pool.map(send, questions[:48]))  # warm-up
        started_s = time.perf_counter()
        replies = list(pool.map(send, questions))
        elapsed_s = time.perf_counter() - started_s
        alone = [send(question) for question in questions[:NUM_ALONE]]
    _show_questions(questions, replies)
    _show_figures(questions, replies, alone, elapsed_s)


def _show_questions(questions: list[Question], replies: list[Reply]) -> None:
    """Shows two questions of each topic, and a few that were read wrongly."""
    pairs = list(zip(questions, replies, strict=True))
    right = [pair for pair in pairs if _is_right(*pair)]
    wrong = [pair for pair in pairs if not _is_right(*pair)]
    chosen = [pair for topic in TOPICS for pair in [pair for pair in right if pair[0].topic == topic][:2]]
    print()
    for question, reply in (*chosen, *wrong[:3]):
        mistake = "" if _is_right(question, reply) else f", is {question.topic} / {question.intent}"
        print(f"{question.text:>60} | {reply.topic} / {reply.intent}, {reply.probability:.0%}{mistake}")


def _is_right(question: Question, reply: Reply) -> bool:
    return (reply.topic, reply.intent) == (question.topic, question.intent)


def _show_figures(questions: list[Question], replies: list[Reply], alone: list[Reply], elapsed_s: float) -> None:
    num_right = sum(map(_is_right, questions, replies))
    num_routed = sum(question.topic == reply.topic for question, reply in zip(questions, replies, strict=True))
    num_asked = Counter(reply.topic for reply in replies)
    print(f"\n{len(replies)} held-out questions over HTTP: {num_right / len(replies):.1%} right, ", end="")
    print(f"{num_routed / len(replies):.1%} sent to the right expert")
    print(f"asked: {', '.join(f'{topic} {num_asked[topic]}' for topic in TOPICS)}")
    print(f"latency with one client: {_quantiles([reply.latency_s for reply in alone])}")
    print(f"latency with {NUM_CLIENTS} clients: {_quantiles([reply.latency_s for reply in replies])}")
    print(f"throughput with {NUM_CLIENTS} clients: {len(replies) / elapsed_s:,.0f} requests/s")


def _quantiles(latencies_s: list[float]) -> str:
    p50, p99 = np.quantile(latencies_s, [0.5, 0.99]) * 1000
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


if __name__ == "__main__":
    main()
