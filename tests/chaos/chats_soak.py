"""Streams 10,000 chats of a few tokens from a cell, whose model keeps 10 kB for each: what is left of them?

``python -m tests.chaos.chats_soak [--chats N] [--clients N]``. One client in fifty leaves after its first token. Every token is
checked; at the end no resident is left, and the process has not grown. The last line is one JSON object; the exit status is 1 if
any of this is violated.
"""

import argparse
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import psutil

import dyorc
from dyorc.testing import ServerProcess
from tests.deadlines import TIMEOUT_S, wait_until
from tests.server_process import client_of, serving, target

_NUM_STRETCHES = 10
_WARM_UP = 0.1
"""Share of the chats before memory is measured first."""
_MAX_GROWTH_MIB = 4.0
"""A few bytes per chat: far less than the 10 kB that it held."""
_ONE_LEAVES_IN = 50
_MAX_TOKENS = 5
_SETTINGS = {"DYORC_TELEMETRY__RECORDS__MAX_BYTES": "0"}
"""Records of ended requests may take 64 MiB, which is no leak."""


def run(num_chats: int, num_clients: int, seed: int = 1) -> tuple[dict[str, Any], list[str]]:
    """Streams all chats. Returns figures, and what went wrong."""
    chance = random.Random(seed)
    wrong: list[str] = []
    memory: list[float] = []
    with serving([target("small_chats", "small_chat")], in_process=True, **_SETTINGS) as server:
        process = psutil.Process(server.process.pid)
        started_s = time.monotonic()
        with ThreadPoolExecutor(num_clients) as pool, dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client:
            for share in (_WARM_UP, *[(1 - _WARM_UP) / _NUM_STRETCHES] * _NUM_STRETCHES):
                drawn = [(chance.randrange(1000), chance.randint(1, _MAX_TOKENS)) for _ in range(round(share * num_chats))]
                wrong += [fault for fault in pool.map(partial(_fault_of, client), *zip(*drawn, strict=True)) if fault]
                memory.append(process.memory_info().rss / 2**20)
        seconds = time.monotonic() - started_s
        wrong += _left_in(server)
        server.stop()
        wrong += server.leftovers()
    growth = memory[-1] - memory[0]
    if growth > _MAX_GROWTH_MIB:
        wrong.append(f"the process grew by {growth:.1f} MiB: {[round(each) for each in memory]}")
    figures = {"chats": num_chats, "chats_per_s": round(num_chats / seconds), "rss_mb": [round(each, 1) for each in memory]}
    return figures | {"violations": len(wrong)}, wrong


def _fault_of(client: dyorc.Client, number: int, num_tokens: int) -> str:
    """Has one chat. Returns what is wrong with it; empty if nothing is."""
    parts = client.stream("small_chat", number=np.array(number), num_tokens=num_tokens)
    if number % _ONE_LEAVES_IN == 0:
        first = next(parts).item()
        parts.close()
        return "" if first == number else f"{first}, expected {number}"
    found = [part.item() for part in parts]
    right = list(range(number, number + num_tokens))
    return "" if found == right else f"{found}, expected {right}"


def _left_in(server: ServerProcess) -> list[str]:
    """Returns which residents the engine or the process still has, once all clients are gone."""
    with client_of(server) as client:

        def held() -> list[int]:
            status = client.get("/status").json()
            known = sum(program["num_residents"] for program in status["programs"].values())
            return [known, status["link"]["num_residents"], status["link"]["resident_bytes"]]

        try:
            wait_until(lambda: not any(held()), "residents are released", 30)
        except AssertionError:
            return [f"{held()} residents known, residents held, and their bytes are left"]
    return []


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    figures, wrong = run(options.chats, options.clients)
    print("\n".join(wrong[:20]), file=sys.stderr)
    print(json.dumps(figures))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
