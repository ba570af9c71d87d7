"""Gateways and orchestrators in processes of their own, as the tests start them: they share a folder, and nothing else."""

import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dyorc.testing import ServerProcess
from dyorc.testing.traces import SHARED_MEMORY


@dataclass(frozen=True)
class Cluster:
    """What all its processes know.

    Attributes:
        environment: Settings.
    """

    environment: dict[str, str]

    def orchestrator(self, targets: Sequence[str], *options: str, **environment: str) -> ServerProcess:
        """Returns an orchestrator with its programs in its process; enter it."""
        command = [sys.executable, "-m", "dyorc.cli", "orchestrator", *targets, "--in-process", "--verbose", *options]
        return ServerProcess(command, environment=self.environment | environment)

    def gateway(self, *options: str, **environment: str) -> ServerProcess:
        """Returns a gateway; enter it."""
        command = [sys.executable, "-m", "dyorc.cli", "gateway", "--port", "0", "--verbose", *options]
        return ServerProcess(command, environment=self.environment | environment)


@contextmanager
def cluster() -> Generator[Cluster]:
    """Returns an empty one."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder, _arenas(Path(folder)) as arenas:
        yield Cluster(
            {
                "DYORC_STORE": f"sqlite://{folder}/store.db",
                "DYORC_TRANSPORT__ARENA_FOLDER": arenas,
                "DYORC_CLUSTER__LEASE_S": "1",
            }
        )


@contextmanager
def _arenas(folder: Path) -> Generator[str]:
    place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else folder
    with tempfile.TemporaryDirectory(prefix="dyorc-of-tests-", dir=place) as arenas:
        yield arenas
