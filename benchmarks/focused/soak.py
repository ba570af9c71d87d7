"""20,000 requests in a row over HTTP against a real `dyorc serve`: does the server's process grow?

``python -m benchmarks.focused.soak [--requests N] [--clients N]``. The last line is one JSON object.
"""

import argparse
import http.client
import json
import threading
import time
from urllib.parse import urlsplit

import numpy as np
import psutil

from tests import oip
from tests.deadlines import wait_until
from tests.server_process import ServerProcess, serving, target

_WARM_UP_RATIO = 0.1
_PATH = "/v2/models/double_until_large/infer"


def _client(url: str, number: int, num_requests: int, failures: list[str]) -> None:
    """One keep-alive connection; checks every answer."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    for at in range(num_requests):
        x = np.full(4, 1 + (number + at) % 7, np.float32)
        if at % 100 == 50:
            x = x[:3]  # errors must not leak either
        body = oip.binary_body({"x": x}, parameters={"binary_data_output": True})
        connection.request("POST", _PATH, body.content, dict(body.headers))
        response = connection.getresponse()
        content = response.read()
        if len(x) == 3:
            is_right = response.status == 400
        else:
            y = np.frombuffer(content[-16:], np.float32)
            is_right = response.status == 200 and y[0] >= 100 and y[0] / x[0] in (16, 32, 64, 128)
        if not is_right:
            failures.append(f"{response.status} {content[:200]!r}")
    connection.close()


def _send(server: ServerProcess, num_requests: int, num_clients: int) -> float:
    """Sends requests; gives the seconds they took.

    Raises:
        SystemExit: If an answer was wrong.
    """
    failures: list[str] = []
    share = num_requests // num_clients
    threads = [threading.Thread(target=_client, args=(server.url, number, share, failures)) for number in range(num_clients)]
    started_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"{len(failures)} wrong answers, the first: {failures[0]}")
    return time.monotonic() - started_s


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    with serving([target("arithmetic", "double_until_large")]) as server:
        process = psutil.Process(server.process.pid)

        def num_connections() -> int:
            port = urlsplit(server.url).port
            return sum(one.laddr.port == port and one.status == "ESTABLISHED" for one in process.net_connections("tcp"))

        def measure() -> tuple[float, int]:
            wait_until(lambda: not num_connections(), "the server has closed the connections that its clients closed")
            return process.memory_info().rss / 2**20, process.num_fds()

        _send(server, int(options.requests * _WARM_UP_RATIO), options.clients)
        rss_start_mb, fds_start = measure()
        series = [rss_start_mb]
        seconds = 0.0
        for _ in range(10):
            seconds += _send(server, options.requests // 10, options.clients)
            series.append(measure()[0])
            print(f"{series[-1]:.1f} MiB, {process.num_fds()} descriptors", flush=True)
        rss_end_mb, fds_end = measure()
        server.stop()
    figures = {
        "requests": options.requests,
        "rss_start_mb": round(rss_start_mb, 1),
        "rss_end_mb": round(rss_end_mb, 1),
        "fds_start": fds_start,
        "fds_end": fds_end,
        "rps": round(options.requests / seconds),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
