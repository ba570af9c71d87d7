"""Starts a server for the search, asks it questions over HTTP, shows what it answers, and stops it.

    python examples/retrieval/demo.py [--in-process]

Its options are those of `dyorc serve`.
"""

import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from retrieval_questions import QUESTIONS

import dyorc
from dyorc.testing import serving

NUM_CLIENTS = 8
NUM_SHOWN = 5


@dataclass(frozen=True)
class Reply:
    """One answer. `latency_s` is measured at the client."""

    passages: list[str]
    scores: list[float]
    was_reranked: bool
    latency_s: float

    def answers(self, words: str, num: int) -> bool:
        """Whether one of the first passages holds these words."""
        return any(words.lower() in passage.lower() for passage in self.passages[:num])


def ask(client: dyorc.Client, question: str) -> Reply:
    """Sends one question, of BYTES without dimensions."""
    started_s = time.perf_counter()
    outputs = client.infer("ask", question=question)
    latency_s = time.perf_counter() - started_s
    passages = [passage.decode() for passage in outputs["passage"]]
    return Reply(passages, outputs["score"].tolist(), bool(outputs["was_reranked"]), latency_s)


def main() -> None:
    """Runs the demonstration."""
    questions = [question for question, _ in QUESTIONS]
    app = Path(__file__).with_name("app.py")
    with (
        serving(f"{app}:ask", *sys.argv[1:], show=lambda line: print(f"  server | {line}", flush=True)) as server,
        dyorc.Client(server.url) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as pool,
    ):
        send = partial(ask, client)
        list(pool.map(send, questions[:16]))  # warm-up
        started_s = time.perf_counter()
        replies = list(pool.map(send, questions))
        elapsed_s = time.perf_counter() - started_s
        alone = [send(question) for question in questions]
    _show_answers(replies)
    _show_figures(replies, alone, elapsed_s)


def _show_answers(replies: list[Reply]) -> None:
    """Shows the best passage for some questions that it answers, and for one that it does not."""
    pairs = [(question, words, reply) for (question, words), reply in zip(QUESTIONS, replies, strict=True)]
    right = [pair for pair in pairs if pair[2].answers(pair[1], 1)]
    wrong = [pair for pair in pairs if not pair[2].answers(pair[1], 5)]
    for question, words, reply in (*right[:NUM_SHOWN], *wrong[:1]):
        how = "compared closely" if reply.was_reranked else "sure at once"
        mistake = "" if reply.answers(words, 1) else "; does not answer it"
        print(f"\n{question}  ({how}, score {reply.scores[0]:.2f}{mistake})")
        print(textwrap.indent(textwrap.fill(textwrap.shorten(reply.passages[0], 240), 110), "    "))


def _show_figures(replies: list[Reply], alone: list[Reply], elapsed_s: float) -> None:
    first, in_5 = (
        np.mean([reply.answers(words, num) for reply, (_, words) in zip(replies, QUESTIONS, strict=True)]) for num in (1, 5)
    )
    print(f"\n{len(replies)} questions over HTTP: answered by the first passage {first:.1%}, by one of five {in_5:.1%}")
    print(f"{np.mean([reply.was_reranked for reply in replies]):.0%} were compared closely")
    for is_close, name in ((False, "sure at once"), (True, "compared closely")):
        latencies_s = [reply.latency_s for reply in alone if reply.was_reranked == is_close]
        print(f"latency with one client, {name}: {_quantiles(latencies_s)}")
    print(f"latency with {NUM_CLIENTS} clients: {_quantiles([reply.latency_s for reply in replies])}")
    print(f"throughput with {NUM_CLIENTS} clients: {len(replies) / elapsed_s:,.0f} requests/s")


def _quantiles(latencies_s: list[float]) -> str:
    p50, p99 = np.quantile(latencies_s, [0.5, 0.99]) * 1000
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


if __name__ == "__main__":
    main()
