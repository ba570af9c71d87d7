"""What being seen costs: one cell's requests per second with nothing switched on, with records, metrics and traces.

    python -m benchmarks.focused.telemetry [--systems off,records,metrics,default,traces_1_percent,traces_all] [--rounds 5]
                                           [--duration-s 4]

The cascade of two small torch networks of the benchmark of overhead, in one cell. The settings take turns, in several rounds.
Spans go by OTLP over HTTP to a sink in this process, which reads and forgets them and so takes next to nothing of the machine.

The last line is one JSON object: medians over the rounds for each setting, and in `rps_ratio`, for each but the first, the median
over the rounds of its requests per second with 32 clients, divided by those of the first setting in the same round.
"""

import statistics
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.focused import turns
from benchmarks.focused.overhead.nets import draw_pool
from benchmarks.focused.turns import Rounds, System, Turn
from loadgen.pool import Pool
from loadgen.targets.base import TargetSpec

_TARGET = f"{Path(__file__).parent / 'overhead' / 'cascade.py'}:cascade"
_NUM_CLIENTS = (1, 32)
_PREFIX = "DYORC_TELEMETRY__"
_OFF = {"METRICS": "false", "PAGE": "false", "RECORDS__MAX_BYTES": "0"}


class _Sink(BaseHTTPRequestHandler):
    """Takes spans and forgets them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def systems(sink_url: str) -> dict[str, System]:
    """Returns one cell with each of the settings."""
    traces = {"TRACES__ENDPOINT": sink_url, "TRACES__PROTOCOL": "http/protobuf"}
    return {
        "off": _cell(_OFF),
        "records": _cell({"METRICS": "false", "PAGE": "false"}),
        "metrics": _cell({"PAGE": "false", "RECORDS__MAX_BYTES": "0"}),
        "default": _cell({}),
        "traces_1_percent": _cell({**traces, "TRACES__RATIO": "0.01"}),
        "traces_all": _cell({**traces, "TRACES__RATIO": "1"}),
    }


def _cell(settings: dict[str, str]) -> System:
    return turns.dyorc(_TARGET, "--in-process", **{f"{_PREFIX}{name}": value for name, value in settings.items()})


def measure(turn: Turn, pool: Pool) -> dict[str, float]:
    """Measures with few and with many clients."""
    spec = TargetSpec(protocol="http", url=turn.address.url, model="cascade")
    figures: dict[str, float] = {}
    for num_clients in _NUM_CLIENTS:
        figures |= turn.closed_loop(spec, pool, num_clients)
    return figures


def summarize(rounds: Rounds) -> dict[str, object]:
    """Returns medians over the rounds, and the ratios."""
    names = list(rounds)
    summary: dict[str, object] = {name: turns.without_cpu(turns.medians(figures)) for name, figures in rounds.items()}
    summary["rps_ratio"] = {
        name: round(
            statistics.median(
                mine["rps_32"] / first["rps_32"] for mine, first in zip(rounds[name], rounds[names[0]], strict=True)
            ),
            3,
        )
        for name in names[1:]
    }
    return summary


def main() -> None:
    """Measures, beside a sink for spans."""
    sink = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    modes = systems(f"http://127.0.0.1:{sink.server_port}")
    turns.main(__doc__, modes, partial(measure, pool=draw_pool()), summarize, duration_s=4.0)


if __name__ == "__main__":
    main()
