"""The processes of the storm whose histories are judged: gateways, orchestrators of one group, a store, a link to it for each."""

import contextlib
import signal
import socket
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dyorc.leader_election.leader_discovery import find_leader
from dyorc.testing import ServerProcess
from tests.chaos.recorded_service import MADE, MODULE, stop_file
from tests.deadlines import wait_until
from tests.redis_server import RedisServer
from tests.shared_folders import shared_folder
from tests.store_link import StoreLink

LEASE_S = 1.0
NUM_GATEWAYS, NUM_ORCHESTRATORS = 2, 3


class Place:
    """Where a server runs: one process after the other, with the same link to the store.

    Args:
        arguments: The command, such as ``gateway --port 7001``.
        link: To Redis; None with SQLite, which cannot be cut off.
    """

    def __init__(self, arguments: Sequence[str], environment: dict[str, str], records: Path, link: StoreLink | None) -> None:
        self._command = [sys.executable, "-m", MODULE, str(records), *arguments]
        self._environment = environment if link is None else environment | {"DYORC_STORE": link.url}
        self.link = link
        self.start()

    def start(self) -> None:
        """Starts its next process."""
        self.server = ServerProcess(self._command, environment=self._environment).__enter__()

    @property
    def pid(self) -> int:
        return self.server.process.pid

    @property
    def has_ended(self) -> bool:
        return self.server.process.poll() is not None

    def end(self) -> None:
        """Kills its process."""
        self.server.process.kill()
        self.server.__exit__(None, None, None)

    def replace(self) -> None:
        """Kills its process and starts the next."""
        self.end()
        self.start()

    @contextlib.contextmanager
    def stopped(self) -> Generator[None]:
        """Stops its process by SIGSTOP for the block."""
        process = self.server.process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)


class Services:
    """Two gateways, an orchestrator that leads, and two that stand by; all run while entered.

    Args:
        store: ``sqlite`` or ``redis``.
        folder: For the store, and for what processes record.
        targets: What the orchestrators serve.
        mistakes: That processes make on purpose, see `services_storm_mistakes`.

    Attributes:
        urls: Where the gateways listen; the same after a kill as before.
        records: What processes have recorded.
        stop_at_note: If this file is there, the next process that is about to write what is deployed stops itself.
    """

    def __init__(self, store: str, folder: Path, targets: Sequence[str], mistakes: Sequence[str] = ()) -> None:
        self._store, self._folder, self._targets, self._mistakes = store, folder, targets, mistakes
        self.records = folder / "records"
        self.stop_at_note = stop_file(self.records)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self._redis = stack.enter_context(RedisServer()) if self._store == "redis" else None
            self.store = f"sqlite://{self._folder}/store.db" if self._redis is None else self._redis.url
            environment = {
                MADE: " ".join(self._mistakes),
                "DYORC_STORE": self.store,
                "DYORC_TRANSPORT__ARENA_FOLDER": stack.enter_context(shared_folder()),
                "DYORC_CLUSTER__LEASE_S": str(LEASE_S),
                "DYORC_GATEWAY__GRPC": "false",
                "DYORC_ENGINE__REQUEST_TIMEOUT_S": "20",
            }
            ports = [self._reserve_port() for _ in range(NUM_GATEWAYS)]
            self.urls = [f"http://127.0.0.1:{port}" for port in ports]
            serve = ["orchestrator", *self._targets, "--in-process"]
            self.orchestrators = [self._place(serve, environment) for _ in range(NUM_ORCHESTRATORS)]
            self.gateways = [self._place(["gateway", "--port", str(port)], environment) for port in ports]
            for gateway in self.gateways:
                gateway.server.wait_until_ready()
            self.wait_for_standbys(NUM_ORCHESTRATORS)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _place(self, arguments: Sequence[str], environment: dict[str, str]) -> Place:
        link = None if self._redis is None else self._stack.enter_context(StoreLink(self._redis.socket))
        place = Place(arguments, environment, self.records, link)
        self._stack.callback(place.end)
        return place

    def _reserve_port(self) -> int:
        """Binds a port and never listens: it stays ours while there is no gateway."""
        reserved = self._stack.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        return int(reserved.getsockname()[1])

    def leader(self) -> Place | None:
        """Returns the orchestrator that the store says leads."""
        leader = find_leader(self.store, "default")
        return next((place for place in self.orchestrators if leader is not None and place.pid == leader.pid), None)

    def renew(self) -> None:
        """Starts orchestrators again that have ended, as they do when they have lost their lead."""
        for place in self.orchestrators:
            if place.has_ended:
                place.replace()

    def wait_for_standbys(self, num_up: int) -> None:
        """Returns once so many orchestrators lead or stand by, or one has ended."""

        def is_met() -> bool:
            ready = ["Standing by" in place.server.output for place in self.orchestrators if not place.has_ended]
            return len(ready) < NUM_ORCHESTRATORS or sum(ready) >= num_up

        wait_until(is_met, f"{num_up} orchestrators lead or stand by")
