"""Gateways and orchestrators in processes of their own, as the tests start them: they share a folder, and nothing else."""

import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dyorc.testing import ServerProcess
from tests.shared_folders import shared_folder

LEASE_S = 3


@dataclass(frozen=True)
class Cluster:
    """What all its processes know.

    Attributes:
        environment: Settings.
    """

    environment: dict[str, str]

    def orchestrator(self, targets: Sequence[str], *options: str, in_process: bool = True, **environment: str) -> ServerProcess:
        """Returns an orchestrator with its programs in its process, or on a Ray of its own; enter it."""
        where = ["--in-process"] if in_process else []
        command = [sys.executable, "-m", "dyorc.cli.main", "orchestrator", *targets, *where, "--verbose", *options]
        return ServerProcess(command, environment=self.environment | environment)

    def gateway(self, *options: str, **environment: str) -> ServerProcess:
        """Returns a gateway; enter it."""
        command = [sys.executable, "-m", "dyorc.cli.main", "gateway", "--port", "0", "--verbose", *options]
        return ServerProcess(command, environment=self.environment | environment)


@contextmanager
def cluster() -> Generator[Cluster]:
    """Returns an empty one."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder, shared_folder() as arenas:
        yield Cluster(
            {
                "DYORC_STORE": f"sqlite://{folder}/store.db",
                "DYORC_TRANSPORT__ARENA_FOLDER": arenas,
                "DYORC_CLUSTER__LEASE_S": str(LEASE_S),
            }
        )
