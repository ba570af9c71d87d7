"""What OpenAI's form of a stream adds to the native ways to read the same workflow's parts: time to the first, and work for each.

    python -m benchmarks.focused.openai_streams [--rounds 6] [--duration-s 3]

One cell serves a chat whose model does almost nothing (`hashes.py`). Clients in a process of their own read it by
``/v1/chat/completions``, by ``/run`` as events, and by ``generate_stream``; these forms take turns, in another order each round.

* "first_p50_ms_N", "first_p99_ms_N": from the request to the first word, with N clients whose streams have 20 words;
* "chunks_per_s_N": words a second of N clients whose streams have 200 words;
* "cpu_us_per_chunk_N": the server's processor time for each of these words;
* "added": what OpenAI's form adds to ``/run``, the median over the rounds of the difference within a round; "chunks_ratio_N" is
  its rate relative to that.

Progress goes to stderr. The last line of stdout is one JSON object. Takes two minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import numpy as np
import psutil
import uvloop

from benchmarks.focused.openai_streams.reading import FORMS, StreamsRead, read_streams
from benchmarks.serving import Address, serving
from dyorc.testing import ServerProcess

_APP = Path(__file__).with_name("hashes.py")
_CLIENTS = (1, 32)
_SHORT, _LONG = 20, 200
_WARM_UP_S = 1.0

Figures = dict[str, float]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--duration-s", type=float, default=3.0)
    options = parser.parse_args()
    rounds: list[dict[str, Figures]] = []
    command = [sys.executable, "-m", "dyorc.cli.main", "serve", f"{_APP}:hashes", "--in-process", "--port", "0"]
    with serving(command) as (address, server):
        for form in FORMS:
            _read(address, form, 4, _SHORT, _WARM_UP_S)
        for number in range(options.rounds):
            order = FORMS[number % len(FORMS) :] + FORMS[: number % len(FORMS)]
            rounds.append({form: measure(address, server, form, options.duration_s) for form in order})
            print(number + 1, {form: rounds[-1][form] for form in FORMS}, file=sys.stderr, flush=True)
    print(json.dumps(summarize(rounds)))


def measure(address: Address, server: ServerProcess, form: str, duration_s: float) -> Figures:
    """Measures one form."""
    process = psutil.Process(server.process.pid)
    figures: Figures = {}
    for num_clients in _CLIENTS:
        first_ns = _read(address, form, num_clients, _SHORT, duration_s / 2).first_ns
        p50, p99 = (np.quantile(first_ns, [0.5, 0.99], method="inverted_cdf") / 1e6).tolist()
        busy_s = _busy_s(process)
        streams = _read(address, form, num_clients, _LONG, duration_s / 2)
        figures |= {
            f"first_p50_ms_{num_clients}": round(p50, 3),
            f"first_p99_ms_{num_clients}": round(p99, 3),
            f"chunks_per_s_{num_clients}": round(streams.num_words / streams.elapsed_s, 1),
            f"cpu_us_per_chunk_{num_clients}": round(1e6 * (_busy_s(process) - busy_s) / streams.num_words, 2),
        }
    return figures


def _read(address: Address, form: str, num_clients: int, num_words: int, duration_s: float) -> StreamsRead:
    return uvloop.run(read_streams(address, form, num_clients=num_clients, num_words=num_words, duration_s=duration_s))


def _busy_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def summarize(rounds: list[dict[str, Figures]]) -> dict[str, Figures]:
    """Returns the medians of each form, and what OpenAI's adds to ``/run``."""
    summary = {form: {name: _median([each[form][name] for each in rounds]) for name in rounds[0][form]} for form in FORMS}
    added: Figures = {}
    for name in rounds[0]["openai"]:
        pairs = [(each["openai"][name], each["run"][name]) for each in rounds]
        if name.startswith("chunks"):
            added[name.replace("chunks_per_s", "chunks_ratio")] = _median([ours / native for ours, native in pairs])
        else:
            added[name] = _median([ours - native for ours, native in pairs])
    return summary | {"added": added}


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 3)


if __name__ == "__main__":
    main()
