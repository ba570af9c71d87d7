"""Starts a server for the digits cascade, sends it every held-out digit over HTTP, shows the answers, and stops it.

    python examples/digits/demo.py [--in-process]

Its options are those of `dyorc serve`.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from digits_nets import digits

import dyorc
from dyorc.testing import serving

NUM_CLIENTS = 16
SHADES = " .:-=+*#%@"


@dataclass(frozen=True)
class Reply:
    """One answer. `latency_s` is measured at the client."""

    digit: int
    probability: float
    took_large: bool
    latency_s: float


def classify(client: dyorc.Client, image: np.ndarray) -> Reply:
    """Sends one picture, shape [1, 8, 8] of FP32."""
    started_s = time.perf_counter()
    outputs = client.infer("classify", image=image)
    latency_s = time.perf_counter() - started_s
    probabilities = outputs["probabilities"]
    return Reply(int(probabilities.argmax()), float(probabilities.max()), bool(outputs["took_large"]), latency_s)


def main() -> None:
    """Runs the demonstration."""
    images, labels = (tensor.numpy() for tensor in digits(is_held_out=True))
    workflow = Path(__file__).with_name("workflow.py")
    with (
        serving(f"{workflow}:classify", *sys.argv[1:], show=lambda line: print(f"  server | {line}", flush=True)) as server,
        dyorc.Client(server.url) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as pool,
    ):
        read = partial(classify, client)
        list(pool.map(read, images[:64]))  # warm-up
        started_s = time.perf_counter()
        replies = list(pool.map(read, images))
        elapsed_s = time.perf_counter() - started_s
        alone = [read(image) for image in images[:200]]
    _show_digits(images, labels, replies)
    _show_figures(labels, replies, alone, elapsed_s)


def _show_digits(images: np.ndarray, labels: np.ndarray, replies: list[Reply]) -> None:
    """Shows some digits as sent, and the answers: two easy ones, two hard ones, two mistakes."""
    is_right = np.array([reply.digit for reply in replies]) == labels
    took_large = np.array([reply.took_large for reply in replies])
    chosen = [
        *np.nonzero(is_right & ~took_large)[0][:2],
        *np.nonzero(is_right & took_large)[0][:2],
        *np.nonzero(~is_right)[0][:2],
    ]
    print()
    for row in range(8):
        print("   ".join("".join(SHADES[int(shade * 9)] * 2 for shade in images[at, 0, row]) for at in chosen))
    captions = ([f"read as {replies[at].digit}, is {labels[at]}" for at in chosen], [_source(replies[at]) for at in chosen])
    for caption in captions:
        print("   ".join(f"{text:<16}" for text in caption))


def _source(reply: Reply) -> str:
    return f"{'large' if reply.took_large else 'small'} net, {reply.probability:.0%}"


def _show_figures(labels: np.ndarray, replies: list[Reply], alone: list[Reply], elapsed_s: float) -> None:
    num_right = sum(reply.digit == label for reply, label in zip(replies, labels, strict=True))
    num_large = sum(reply.took_large for reply in replies)
    print(f"\n{len(replies)} held-out digits over HTTP: {num_right / len(replies):.1%} right")
    print(f"{num_large} ({num_large / len(replies):.0%}) took the large net")
    print(f"latency with one client: {_quantiles([reply.latency_s for reply in alone])}")
    print(f"latency with {NUM_CLIENTS} clients: {_quantiles([reply.latency_s for reply in replies])}")
    print(f"throughput with {NUM_CLIENTS} clients: {len(replies) / elapsed_s:,.0f} requests/s")


def _quantiles(latencies_s: list[float]) -> str:
    p50, p99 = np.quantile(latencies_s, [0.5, 0.99]) * 1000
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


if __name__ == "__main__":
    main()
