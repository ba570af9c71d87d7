"""Sends 20,000 requests in a row over HTTP to a real `dyorc serve`: does the server's process grow?

``python -m benchmarks.focused.soak [--requests N] [--clients N]``. Every answer is checked; one request in fifty is refused. The
last line is one JSON object.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks.focused import turns
from benchmarks.serving import BenchmarkError, serving
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.run import run
from loadgen.targets.base import TargetSpec

_APP = Path(__file__).with_name("app.py")
_REFUSED = "too short"
_NUM_INPUTS, _NUM_REFUSED = 49, 1
_STRETCH_S = 2.0
_CLOSED_WITHIN_S = 30.0


def draw_pool() -> Pool:
    """Returns requests that take two to seven turns, and one that is refused, since errors must not leak either."""
    inputs = [np.full(4, 1 + number % 7, np.float32) for number in range(_NUM_INPUTS)]
    answers = [x * 2 ** np.ceil(np.log2(100 / x)) for x in inputs]
    short = np.ones(3, np.float32)
    return Pool(
        inputs=[{"x": x} for x in [*inputs, short]],
        answers=[{"output": x} for x in [*answers, short]],
        branches=["right"] * _NUM_INPUTS + [_REFUSED] * _NUM_REFUSED,
    )


class Server:
    """The observed process."""

    def __init__(self, pid: int, port: int) -> None:
        self._process = psutil.Process(pid)
        self._port = port

    def measure(self) -> tuple[float, int]:
        """Returns its MiB and file descriptors, once it has closed the connections that its clients closed."""
        give_up_at_s = time.monotonic() + _CLOSED_WITHIN_S
        while self._num_connections() and time.monotonic() < give_up_at_s:
            time.sleep(0.05)
        return self._process.memory_info().rss / 2**20, self._process.num_fds()

    def _num_connections(self) -> int:
        connections = self._process.net_connections("tcp")
        return sum(connection.laddr.port == self._port and connection.status == "ESTABLISHED" for connection in connections)


def stretch(spec: TargetSpec, pool: Pool, num_clients: int) -> int:
    """Runs a closed loop for some seconds and returns the number of requests.

    Raises:
        BenchmarkError: If an answer was wrong, or missing.
    """
    load = Load(arrivals="closed", num_clients=num_clients, warm_up_s=0.0, duration_s=_STRETCH_S)
    result = run("soak", spec, pool, load)
    refused = result.branches[_REFUSED].num_requests if _REFUSED in result.branches else 0
    is_right = result.counts.failed == refused and all(error.startswith("HTTP 400") for error in result.errors)
    if not is_right or result.counts.correct + refused != result.counts.planned:
        raise BenchmarkError(f"{result.counts}, {refused} to be refused: {result.first_wrong or result.errors}")
    return result.counts.planned


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="at least")
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    pool = draw_pool()
    with serving(turns.dyorc(f"{_APP}:double_until_large").command) as (address, running):
        spec = TargetSpec(protocol="http", url=address.url, model="double_until_large")
        server = Server(running.process.pid, address.http_port)
        stretch(spec, pool, options.clients)  # warms up
        (rss_start_mb, fds_start), num_sent, num_stretches = server.measure(), 0, 0
        rss_end_mb, fds_end = rss_start_mb, fds_start
        while num_sent < options.requests:
            num_sent += stretch(spec, pool, options.clients)
            num_stretches += 1
            rss_end_mb, fds_end = server.measure()
            turns.log(f"{num_sent:>7,} requests: {rss_end_mb:.1f} MiB, {fds_end} descriptors")
    figures = {
        "requests": num_sent,
        "rss_start_mb": round(rss_start_mb, 1),
        "rss_end_mb": round(rss_end_mb, 1),
        "fds_start": fds_start,
        "fds_end": fds_end,
        "rps": round(num_sent / (num_stretches * _STRETCH_S)),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    try:
        main()
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
