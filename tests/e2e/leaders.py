"""Orchestrators of a group as a test sees them: processes on hosts that run requests on command, and say what happens."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dyorc.testing import ServerProcess
from dyorc.transport.cluster_network import write_new_keys
from tests.deadlines import wait_until
from tests.ray_nodes import RAY_PORT
from tests.server_process import target
from tests.two_hosts import Host

LEASE_S = 4.0


class Leaders:
    """Makes orchestrators that share a store, keys, and the Ray cluster whose head is on a host; and their gateways."""

    def __init__(self, head: Host, store: str, folder: Path) -> None:
        write_new_keys(folder / "keys")
        self._environment = {
            "DYORC_STORE": store,
            "DYORC_DEPLOYMENT__RAY_ADDRESS": f"{head.address}:{RAY_PORT}",
            "DYORC_CLUSTER__KEYS_FILE": str(folder / "keys"),
            "DYORC_CLUSTER__LEASE_S": str(LEASE_S),
        }

    def start(self, host: Host, file: str, workflow: str) -> "LeaderProcess":
        """Starts one on a host."""
        environment = self._environment | {"DYORC_LINK__HOST": host.address, "DYORC_CLUSTER__HOST": host.address}
        with host.entered():
            return LeaderProcess(target(file, workflow), environment)

    def gateway(self, host: Host) -> ServerProcess:
        """Returns a gateway of theirs; enter it on its host."""
        command = [sys.executable, "-m", "dyorc.cli.main", "gateway", "--port", "0", "--verbose"]
        return ServerProcess(command, environment=self._environment | {"DYORC_CLUSTER__HOST": host.address})


class LeaderProcess:
    """One of them; killed at the end of the block."""

    def __init__(self, target: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.leader_process", target], env={**os.environ, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.said: list[dict[str, Any]] = []
        self.answers: dict[int, list[int]] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what it was told last, it did not read
                pipe.close()

    @property
    def is_leading(self) -> bool:
        """Whether it serves, as far as it has said."""
        return self._process.poll() is None and self.has_said("serves") and not self.has_said("over")

    @property
    def fence(self) -> int:
        """The fence with which it leads; 0 if it does not."""
        return next((one["leads"] for one in self.said if "leads" in one), 0)

    @property
    def has_ended(self) -> bool:
        """Whether its process has."""
        return self._process.poll() is not None

    def has_said(self, word: str) -> bool:
        """Returns whether it has said something of this kind."""
        return any(word in one for one in self.said)

    def tell(self, what: object) -> None:
        """Writes a line to it, unless it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{what}\n")
            self._process.stdin.flush()

    def ask(self, seed: int) -> list[int]:
        """Runs a request, however often it has to be tried, and returns its outputs."""
        self.tell(seed)
        self.wait_for("outputs", lambda said: said["seed"] == seed)
        return self.answers[seed]

    def wait_for(self, word: str, is_it: Callable[[dict[str, Any]], bool] = lambda _: True) -> Any:
        """Returns what it says of something, once it does. Prints how long that took."""
        began_s = time.monotonic()
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = [one for one in self.said if word in one and is_it(one)]
            return bool(found) or self._process.poll() is not None

        wait_until(look, f"it says {word!r}")
        assert found, f"it ended with {self._process.returncode} before it said {word!r}; it said {self.said}"
        print(f"{time.monotonic() - began_s:6.2f} s until {found[0] if word != 'outputs' else 'an answer'}")
        return found[0][word]

    def signal(self, number: int) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Has it hand over and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                said = json.loads(line)
                if "outputs" in said:
                    self.answers[said["seed"]] = said["outputs"]
                self.said.append(said)
