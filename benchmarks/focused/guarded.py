"""What guessing ahead saves where a guard stands before a generator: `examples/guarded`, speculation on against off.

    python -m benchmarks.focused.guarded [--rounds 3] [--duration-s 6]

On real servers, in one run, taking turns, so that both meet the same neighbours; with 1, 4 and 32 closed-loop clients that send
the demonstration's traffic. Every answer is compared with what the nets say to that message alone. Medians over the rounds.

Progress goes to stderr. The last line of stdout is one JSON object: the figures with speculation "on" and "off", and ratios
of the two, on / off. Takes about four minutes. The weights have to be there: `make bench-guarded` sees to that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import torch

from benchmarks.serving import ROOT
from dyorc.testing import serving

_HERE = Path(__file__).resolve().parent
_EXAMPLE = ROOT / "examples" / "guarded"
_CLIENT = _HERE / "overhead" / "client.py"
_SWITCH = "DYORC_ENGINE__SPECULATION__ENABLED"
_MODES = {"on": "true", "off": "false"}
_NUM_CLIENTS = (1, 4, 32)
_NUM_MESSAGES = 512
_RATIOS = ("p50_ms_1", "p99_ms_1", "p50_ms_4", "rps_4", "p50_ms_32", "rps_32")


class BenchmarkError(Exception):
    """A measurement failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One server's figures: `p50_ms`, `p99_ms` and `rps`, each for every number of clients, like ``p50_ms_1``."""

    mode: str
    figures: Mapping[str, float]
    wasted_ratio: float | None


def wasted_ratio(url: str) -> float | None:
    """The part of the device time that went to wrong guesses, as the server at `url` tells it; None if it does not."""
    try:
        with urllib.request.urlopen(f"{url}/status", timeout=10) as response:
            status = json.load(response)
    except (urllib.error.URLError, ValueError):
        return None
    section = status.get("speculation") if isinstance(status, dict) else None
    found = section.get("wasted_ratio") if isinstance(section, dict) else None
    return None if found is None else float(found)


def draw_pool() -> tuple[np.ndarray, np.ndarray]:
    """Messages, and what has to come back for each."""
    sys.path.insert(0, str(_EXAMPLE))
    from guarded_nets import MIN_HARM, Generator, Guard, load_net  # pyright: ignore[reportMissingImports]
    from guarded_texts import HARMFUL_RATIO, REFUSAL, draw_messages, encode  # pyright: ignore[reportMissingImports]

    guard, generator = load_net("guard", Guard()), load_net("generator", Generator())
    messages = draw_messages(_NUM_MESSAGES, HARMFUL_RATIO, seed=5, is_held_out=True)
    texts = [encode(message.text)[None] for message in messages]
    refusal = np.frombuffer(REFUSAL, np.uint8)
    with torch.inference_mode():
        answers = [generator.continue_text(text)[0].numpy() if guard(text)[0] < MIN_HARM else refusal for text in texts]
    return torch.cat(texts).numpy(), np.stack(answers)


def measure(mode: str, title: str, pool: Path, warm_up_s: float, duration_s: float) -> Round:
    """Starts a server, and measures it with few and with many clients."""
    started_s = time.monotonic()
    figures: dict[str, float] = {}
    with _environment(_SWITCH, _MODES[mode]), serving(f"{_EXAMPLE / 'workflow.py'}:guarded") as url:
        _log(f"{title}  ready after {time.monotonic() - started_s:4.1f} s")
        for num_clients in _NUM_CLIENTS:
            found = _run_client(url, num_clients, pool, warm_up_s, duration_s)
            figures |= {f"{name}_{num_clients}": value for name, value in found.items()}
            _log(
                f"{title}  {num_clients:>2} clients: p50 {found['p50_ms']:7.2f} ms, p99 {found['p99_ms']:7.2f} ms, "
                f"{found['rps']:6.1f} requests/s"
            )
        return Round(mode=mode, figures=figures, wasted_ratio=wasted_ratio(url))


@contextlib.contextmanager
def _environment(name: str, value: str) -> Generator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _run_client(url: str, num_clients: int, pool: Path, warm_up_s: float, duration_s: float) -> dict[str, float]:
    address = urlsplit(url)
    options = {
        "--host": address.hostname,
        "--port": address.port,
        "--path": "/v2/models/guarded/infer",
        "--protocol": "oip",
        "--input-name": "text",
        "--num-clients": num_clients,
        "--pool": pool,
        "--warm-up-s": warm_up_s,
        "--duration-s": duration_s,
    }
    command = [sys.executable, str(_CLIENT), *(str(word) for pair in options.items() for word in pair)]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode != 0:
        raise BenchmarkError(finished.stderr.strip())
    return json.loads(finished.stdout)


def summarize(rounds: Sequence[Round]) -> dict[str, object]:
    """Medians over the rounds, and the ratios of the medians: below 1 is better for a time, above 1 for a rate."""
    modes = {mode: [one for one in rounds if one.mode == mode] for mode in _MODES}
    medians = {
        mode: {name: round(statistics.median(one.figures[name] for one in own), 3) for name in own[0].figures}
        for mode, own in modes.items()
    }
    wasted = [one.wasted_ratio for one in modes["on"] if one.wasted_ratio is not None]
    ratios = {
        f"{name.replace('_ms', '').replace('_', '_ratio_')}": round(medians["on"][name] / medians["off"][name], 3)
        for name in _RATIOS
    }
    return {**medians, **ratios, "wasted_ratio": round(statistics.median(wasted), 4) if wasted else None}


def main() -> None:
    """Runs all rounds and prints the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up-s", type=float, default=1.5)
    parser.add_argument("--duration-s", type=float, default=6.0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # an exception, so that the server is stopped
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="guarded-") as folder:
        pool = Path(folder) / "pool.npz"
        inputs, answers = draw_pool()
        np.savez(pool, inputs=inputs, answers=answers)
        try:
            rounds = [
                measure(mode, f"round {number}  {mode:<3}", pool, arguments.warm_up_s, arguments.duration_s)
                for number in range(1, arguments.rounds + 1)
                for mode in _MODES
            ]
        except (BenchmarkError, RuntimeError) as error:
            sys.exit(str(error))
    print(json.dumps(summarize(rounds)))


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
