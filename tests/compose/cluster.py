"""The cluster of docker-compose.yml on an engine."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.compose.engine import Engine
from tests.deadlines import wait_until

ROOT = Path(__file__).parents[2]
ORCHESTRATORS = ("orchestrator", "standby")
GATEWAYS = ("gateway", "gateway-2")
_PROJECT = "dyorc-test"
_END_S = 20.0
"""For what is done after all: the last logs, and to take the cluster down."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that runs, or is about to.

    Attributes:
        files: What Compose reads.
        variables: What its files ask for.
        ready_s: How long it took until all was healthy; 0 before that.
    """

    engine: Engine
    files: Sequence[Path]
    variables: Mapping[str, str]
    ready_s: float = 0.0

    def compose(self, *arguments: str) -> str:
        """Runs a command of Compose's."""
        files = [part for file in self.files for part in ("-f", str(file))]
        command = ["docker-compose", "--project-name", _PROJECT, "--project-directory", str(ROOT), *files, *arguments]
        return self.engine.run(command, ROOT, **self.variables)

    def container(self, service: str) -> str:
        """Returns a service's container; empty if it has none, and a line for each if it has several."""
        label = f"label=com.docker.compose.service={service}"
        return self.engine.docker("ps", "--all", "--quiet", "--no-trunc", "--filter", label).strip()

    def pid(self, service: str) -> int:
        """Returns the main process of a service's container; 0 if it does not run."""
        return int(self.engine.docker("inspect", "--format", "{{.State.Pid}}", self.container(service)))

    def kill(self, service: str) -> None:
        """Kills the main process, and returns when it is gone: Docker then starts the container again, as after any end."""
        pid = self.pid(service)
        os.kill(pid, signal.SIGKILL)
        self.wait_until(lambda: self.pid(service) != pid, f"the container of {service} has ended")

    def is_healthy(self, service: str) -> bool:
        """Returns whether the health checks of all its containers say so."""
        containers = self.container(service).split()
        statuses = (
            self.engine.docker("inspect", "--format", "{{.State.Health.Status}}", *containers).split() if containers else []
        )
        return set(statuses) == {"healthy"}

    def leader(self) -> str:
        """Returns the orchestrator that leads, once one does and is ready."""
        self.wait_until(lambda: any(map(self._is_ready, ORCHESTRATORS)), "an orchestrator leads and is ready")
        return next(filter(self._is_ready, ORCHESTRATORS), "") or self.leader()

    def _is_ready(self, orchestrator: str) -> bool:
        try:
            self.engine.docker("exec", self.container(orchestrator), "healthy", "9100", "/v2/health/ready")
        except AssertionError:
            return False
        return True

    def wait_until_healthy(self, *services: str) -> None:
        """Returns when all are.

        Raises:
            AssertionError: If they do not become so. The message is what they have logged.
        """
        for service in services:
            try:
                self.wait_until(lambda service=service: self.is_healthy(service), f"{service} is healthy")
            except AssertionError as error:
                raise self.with_logs(error) from None

    def with_logs(self, error: AssertionError) -> AssertionError:
        """Returns an error that also says how its containers are, and what they logged last."""
        late = replace(self, engine=self.engine.within(_END_S))
        return AssertionError(f"{error}\n{late.compose('ps')}\n{late.compose('logs', '--tail=40')}")

    def wait_until(self, is_met: Callable[[], object], what: str) -> None:
        """Returns as soon as `is_met` returns something true.

        Raises:
            AssertionError: If it does not do so as long as the engine's commands may take.
        """
        wait_until(is_met, what, self.engine.left_s)


@contextlib.contextmanager
def cluster(engine: Engine, *profiles: str, override: Path | None = None, **variables: str) -> Generator[Cluster]:
    """Runs a cluster; returns when Compose has started it. Nothing of it stays."""
    files = [ROOT / "docker-compose.yml", *([] if override is None else [override])]
    started = Cluster(engine, files, {"COMPOSE_PROFILES": ",".join(profiles), **variables})
    try:
        try:
            started.compose("up", "--detach")
        except AssertionError as error:
            raise started.with_logs(error) from None
        yield started
    finally:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            replace(started, engine=engine.within(_END_S)).compose("down", "--volumes", "--timeout", "1")
