"""What requests notice of versions that go live: 20 updates under load, and one that cannot be loaded.

    python -m benchmarks.focused.update [--systems cell,ray] [--updates 20] [--rate 200]

The workflow's own file changes each time, with a program in it that is loaded anew; another file's program is shared. Clients ask
at a fixed rate in all, from a process of their own; the same run says how long requests took before the first update, and during
all of them. The last line is one JSON object: for each system, requests, failures, p50 and p99 before and during, in
milliseconds, their ratio, and how long an update took.
"""

import argparse
import json
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import dyorc
from dyorc.client.retries import Retries
from dyorc.errors import DeployError
from dyorc.testing import serving

_NETS = """
import numpy as np
from jaxtyping import Float
import dyorc

Vectors = Float[np.ndarray, "batch n"]

@dyorc.program
class Large:
    def __init__(self) -> None:
        self.weights = np.eye(64, dtype=np.float32) * 2
    def __call__(self, x: Vectors) -> Vectors:
        return x @ self.weights
"""
_APP = """
import numpy as np
from jaxtyping import Float
import dyorc
from nets import Large

large = Large()

@dyorc.program
class Plus:
    def __init__(self) -> None:
        self.number = {number}
    def __call__(self, x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        return x + self.number

plus = Plus()

@dyorc.workflow
async def flow(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return plus(large(x))
"""
_NUM_CLIENTS = 8
_SETTLE_S, _BEFORE_S = 5.0, 15.0


def _ask(url: str, rate: float, over: Any, results: Any) -> None:
    """Asks at a fixed rate with several clients, until told to stop. Puts when each request was due, and how long it took from
    then; negative if it failed."""
    answers: list[tuple[float, float]] = []
    x = np.arange(64, dtype=np.float32)

    def ask(number: int) -> None:
        with dyorc.Client(url, retries=Retries(max_attempts=1)) as client:
            due_s = time.monotonic() + number / rate
            while not over.is_set():
                time.sleep(max(0.0, due_s - time.monotonic()))
                try:
                    y = client.infer("flow", x=x)
                    is_good = bool(np.all(np.diff(y) == 2))
                except Exception:
                    is_good = False
                took_s = time.monotonic() - due_s
                answers.append((due_s, took_s if is_good else -1.0))
                due_s += _NUM_CLIENTS / rate

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(_NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(answers)


def _update(client: dyorc.Client, folder: Path, num_updates: int) -> list[float]:
    """Deploys version after version. Returns how long each took."""
    app = folder / "app.py"
    took_s: list[float] = []
    for number in range(2, num_updates + 2):
        if number == num_updates // 2:
            app.write_text("import no_such_module\n")
            try:
                client.deploy(f"{app}:flow")
                raise AssertionError("it cannot be loaded")
            except DeployError:
                pass
        app.write_text(_APP.format(number=number))
        started_s = time.monotonic()
        assert client.deploy(f"{app}:flow")["default"] == str(number)
        took_s.append(time.monotonic() - started_s)
    return took_s


def measure(system: str, num_updates: int, rate: float) -> dict[str, float]:
    """Runs a server and its clients."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "nets.py").write_text(_NETS)
        (folder / "app.py").write_text(_APP.format(number=1))
        with serving(f"{folder}/app.py:flow", in_process=system == "cell") as server:
            over, results = context.Event(), context.Queue()
            clients = context.Process(target=_ask, args=(server.url, rate, over, results))
            clients.start()
            time.sleep(_SETTLE_S)
            begin_s = time.monotonic()
            time.sleep(_BEFORE_S)
            update_s = time.monotonic()
            with dyorc.Client(server.url, timeout_s=120) as client:
                took_s = _update(client, folder, num_updates)
            end_s = time.monotonic()
            over.set()
            answers = results.get()
            clients.join()
    before = [took for due, took in answers if begin_s <= due < update_s and took >= 0]
    during = [took for due, took in answers if update_s <= due < end_s and took >= 0]
    ms = {
        f"p{q}_{when}_ms": round(float(np.percentile(each, q)) * 1e3, 3)
        for when, each in (("before", before), ("during", during))
        for q in (50, 99)
    }
    return {
        "num_updates": num_updates,
        "num_requests": len(answers),
        "num_failed": sum(took < 0 for _, took in answers),
        **ms,
        "p99_ratio": round(ms["p99_during_ms"] / ms["p99_before_ms"], 3),
        "max_during_ms": round(max(during) * 1e3, 3),
        "update_s": round(float(np.median(took_s)), 3),
    }


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", default="cell,ray")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rate", type=float, default=200.0)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for system in arguments.systems.split(","):
        results[system] = measure(system, arguments.updates, arguments.rate)
        print(system, json.dumps(results[system], indent=1), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
