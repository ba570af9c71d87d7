"""Large answers and requests: how long they hold up others, how fast clients read them, and how much memory stays in use.

    python -m benchmarks.focused.answers [--rounds 3]

A real ``dyorc serve`` answers one reader at a time: 200 MB as raw bytes (by a bare socket, by both of the product's clients, over
gRPC), and 20 MB as JSON. Then it takes requests of 200 MB (``sent``, ``grpc_sent``). Meanwhile a prober keeps asking for
``/v2/health/live`` on its own connection. Its longest wait shows how long the server's event loop stood still, plus whatever
else the machine did. ``idle_ms`` is the same wait with nothing large, so it shows the machine's part.

The last line is one JSON object with medians over the rounds: the longest wait in ms, also per 100 MB of tensors; the seconds of
each reader; and the MiB that arenas hold after each round and once they have had time to give memory back.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from http.client import HTTPConnection
from typing import Any
from urllib.request import urlopen

from benchmarks.focused.answers import reader, served
from benchmarks.processes import adopt_orphans
from benchmarks.serving import Address, BenchmarkError, serving

_READERS = ("raw", "client", "async_client", "grpc", "text", "sent", "grpc_sent")
_PAUSE_S = 0.001
_IDLE_S = 2.0
_SETTLE_S = 10.0
_ENVIRONMENT = {
    "DYORC_TRANSPORT__ARENA_RELEASE_AFTER_S": "4",
    "DYORC_TRANSPORT__ARENA_KEEP_BYTES": str(16 * 2**20),
    "DYORC_GATEWAY__MAX_REQUEST_BYTES": str(256 * 2**20),
}
_LARGE_100_MB = served.NUM_LARGE * 4 / 1e8
_TEXT_100_MB = served.NUM_TEXT * 4 / 1e8


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    adopt_orphans()
    targets = [f"{served.__file__}:{name}" for name in ("large", "text", "taken")]
    command = [sys.executable, "-m", "dyorc.cli.main", "serve", *targets, "--port", "0"]
    times_s: defaultdict[str, list[float]] = defaultdict(list)
    with serving(command, _ENVIRONMENT) as (address, _):
        for kind in ("raw", "text", "sent"):
            _read(kind, address)  # replicas and arenas warm up
        for _ in range(options.rounds):
            _round(address, times_s)
            print({name: round(values[-1], 3) for name, values in times_s.items()}, file=sys.stderr, flush=True)
        time.sleep(_SETTLE_S)
        times_s["resident_mib_later"].append(_resident_mib(address))
    print(json.dumps({name: round(statistics.median(values), 3) for name, values in times_s.items()}))


def _round(address: Address, times_s: defaultdict[str, list[float]]) -> None:
    with _Prober(address) as prober:
        time.sleep(_IDLE_S)
    times_s["idle_ms"].append(prober.longest_ms)
    for kind in _READERS:
        with _Prober(address) as prober:
            times_s[f"{kind}_s"].append(_read(kind, address))
        times_s[f"{kind}_longest_ms"].append(prober.longest_ms)
        size = _TEXT_100_MB if kind == "text" else _LARGE_100_MB
        times_s[f"{kind}_ms_per_100_mb"].append(prober.longest_ms / size)
    times_s["resident_mib"].append(_resident_mib(address))


def _read(kind: str, address: Address) -> float:
    command = [sys.executable, "-m", reader.__name__, kind, address.url, f"{address.host}:{address.grpc_port}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise BenchmarkError(f"reader {kind!r} failed:\n{ended.stderr}")
    return float(ended.stdout.splitlines()[-1])


def _resident_mib(address: Address) -> float:
    """Returns the size of the orchestrator's arena and those of its replicas."""
    with urlopen(f"{address.url}/status") as answer:
        tensors: dict[str, Any] = json.load(answer)["tensors"]
    return sum(arena["resident_bytes"] for arena in tensors.get("arenas", {}).values()) / 2**20


class _Prober:
    """Keeps asking for almost nothing while entered.

    Attributes:
        longest_ms: The longest wait for an answer.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.longest_ms = 0.0

    def __enter__(self) -> _Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _ask(self) -> None:
        connection = HTTPConnection(self._address.host, self._address.http_port)
        while not self._is_over.wait(_PAUSE_S):
            start_s = time.perf_counter()
            connection.request("GET", "/v2/health/live")
            connection.getresponse().read()
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - start_s) * 1e3)
        connection.close()


if __name__ == "__main__":
    main()
