"""The shapes of servers that the storm stops: how each is started, and in which order its processes are stopped."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dyorc.testing import ServerProcess, serve_command
from tests.parted import Cluster
from tests.server_process import target
from tests.shared_folders import shared_folder

TARGETS = (target("arithmetic", "quadruple"), target("effects", "noted"), target("effects", "once"), target("effects", "aside"))
SHAPES = ("cell", "cells", "ray", "parted")
_MAX_PAUSE_S = 1.5
_BAD_LINES = ("Traceback (most recent call last)", "SIGTERM received", "Fatal Python error", "is ended")


@dataclass
class Running:
    """A server that is ready.

    Attributes:
        entrance: The process that clients talk to.
        others: Those behind it: the one that leads first.
        told_s: When the entrance was told to stop.
        faults: What went wrong with its processes.
        took_s: How long the entrance took to end.
    """

    entrance: ServerProcess
    others: list[ServerProcess] = field(default_factory=list)
    told_s: float = float("inf")
    faults: list[str] = field(default_factory=list)
    took_s: float = 0.0

    def stop(self, number: signal.Signals, chance: random.Random) -> None:
        """Has all its processes end, one after another: the leader while a standby can follow, then the entrance, then what is
        left. By a terminal, sometimes, if the signal is that of Ctrl-C."""
        if len(self.others) > 1:
            self._end(self.others.pop(0), number, chance)
            time.sleep(chance.uniform(0, _MAX_PAUSE_S))
        self.told_s = time.monotonic()
        self._end(self.entrance, number, chance)
        self.took_s = time.monotonic() - self.told_s
        for process in self.others:
            self._end(process, number, chance)

    def _end(self, server: ServerProcess, number: signal.Signals, chance: random.Random) -> None:
        if number is signal.SIGINT and chance.random() < 0.5:
            os.killpg(server.process.pid, number)
        else:
            server.process.send_signal(number)
        server.wait()
        if server.process.returncode != 0:
            self.faults.append(f"ended with {server.process.returncode}:\n{server.output[-3000:]}")
        self.faults += [f"printed {line[:300]!r}" for line in server.lines if any(bad in line for bad in _BAD_LINES)]
        self.faults += [f"left behind: {line}" for line in server.leftovers()]


@contextlib.contextmanager
def started(shape: str, folder: Path, chance: random.Random) -> Generator[Running]:
    """Runs a server of a shape; yields it once it is ready. Its store is in the folder."""
    store = {"DYORC_STORE": f"sqlite://{folder}/store.db", "DYORC_JOBS__LEASE_S": "5"}
    with contextlib.ExitStack() as stack:
        if shape == "parted":
            yield _parted(stack, store, chance)
            return
        options = ["--cells", "2"] if shape == "cells" else []
        command = serve_command(*TARGETS, *options, in_process=shape != "ray")
        server = stack.enter_context(ServerProcess(command, environment=store))
        server.wait_until_ready()
        yield Running(server)


def _parted(stack: contextlib.ExitStack, store: Mapping[str, str], chance: random.Random) -> Running:
    arenas = stack.enter_context(shared_folder())
    cluster = Cluster({**store, "DYORC_TRANSPORT__ARENA_FOLDER": arenas, "DYORC_CLUSTER__LEASE_S": "3"})
    gateway = stack.enter_context(cluster.gateway())
    orchestrators = [stack.enter_context(cluster.orchestrator(TARGETS)) for _ in range(chance.choice((1, 2)))]
    gateway.wait_until_ready()
    for one in orchestrators:
        one.wait_for("Standing by")
    orchestrators.sort(key=lambda one: "Leads group" not in one.output)
    running = Running(gateway, orchestrators)
    stack.callback(lambda: running.faults.extend(f"left behind: {path}" for path in Path(arenas).iterdir()))
    return running
