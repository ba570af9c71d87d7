"""Kills the fork server, parked replicas and warming ones under an on/off load, again and again."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException
from itertools import cycle
from pathlib import Path
from typing import Self

from benchmarks.focused import turns
from benchmarks.focused.scaling_live import watch
from benchmarks.focused.scaling_live.on_off import APP, THRIFTY, dyorc_spec
from benchmarks.focused.scaling_live.traffic import OnOff, as_figures, guarded_pool, send_on_off
from benchmarks.serving import Address, serving
from dyorc.protocol.api_paths import STATUS
from dyorc.testing import ServerProcess

FORK_SERVER = "fork server"
KINDS = (FORK_SERVER, "parked", "loading")
"""What is killed: the fork server, or a replica in one of these states of `/status`."""

_ENVIRONMENT = {
    **THRIFTY,
    "BENCHMARK_LOAD_S": "0.3",
    "BENCHMARK_COLD_DELAY_S": "2",
}
"""Warming takes long enough to be hit, and processes come and go, so that the fork server is needed."""
_CYCLE_S = 10.0
_PAUSE_S = 1.0
_POLL_S = 0.02


def measure_kills(duration_s: float, seed: int) -> dict[str, object]:
    """Returns what happened to the requests, and how much was killed."""
    load = OnOff(duration_s=duration_s, cycle_s=_CYCLE_S, seed=seed)
    with (
        serving(turns.dyorc(APP).command, _ENVIRONMENT) as (address, server),
        Killer(address, server, random.Random(seed)) as killer,
    ):
        result = send_on_off("kills", dyorc_spec(address), guarded_pool(), load)
    figures = as_figures(result) | {"kills": killer.num_kills}
    turns.log(f"kills                {figures}")
    return figures


class Killer:
    """Kills while entered, one kind after another, on its own thread."""

    def __init__(self, address: Address, server: ServerProcess, chance: random.Random) -> None:
        self._address = address
        self._server = server
        self._chance = chance
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="killer")
        self.num_kills = dict.fromkeys(KINDS, 0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _main(self) -> None:
        for kind in cycle(KINDS):
            if self._is_over.wait(_PAUSE_S):
                return
            while not self._is_over.wait(_POLL_S):
                if victims := self._victims(kind):
                    with suppress(ProcessLookupError):
                        os.kill(self._chance.choice(victims), signal.SIGKILL)
                        self.num_kills[kind] += 1
                    break

    def _victims(self, kind: str) -> Sequence[int]:
        if kind == FORK_SERVER:
            return [pid for pid in self._server.pids() if _is_fork_server(pid)]
        with suppress(OSError, HTTPException):
            programs = watch.ask(self._address, STATUS)["programs"].values()
            replicas = [replica for program in programs for replica in program["replicas"].values()]
            return [replica["pid"] for replica in replicas if replica["state"] == kind]
        return ()


def _is_fork_server(pid: int) -> bool:
    """Returns whether a process is the fork server. The processes that it has forked share its command line, but not its name."""
    try:
        folder = Path(f"/proc/{pid}")
        is_family = b"dyorc.replica.fork_server" in (folder / "cmdline").read_bytes()
        return is_family and not (folder / "comm").read_text().startswith("dyorc-")
    except OSError:
        return False
