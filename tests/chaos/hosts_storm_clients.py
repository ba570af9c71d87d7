"""Gateways on two hosts, and beside each a client that has one request after the other answered, and does not try again."""

import contextlib
import itertools
import threading
import time
from collections.abc import Generator
from types import TracebackType
from typing import Self

import numpy as np

import dyorc
from dyorc.client import Retries
from dyorc.testing import ServerProcess
from tests.deadlines import TIMEOUT_S, wait_until
from tests.e2e.leaders import Leaders
from tests.two_hosts import Host
from tests.workflows import far

_ONCE = Retries(max_attempts=1)
_POLL_S = 0.01
_REST_AFTER_FAILURE_S = 0.1
_SEEDS_APART = 1_000_000


class GatewayOn:
    """A gateway on a host, which may be killed and started again.

    Attributes:
        host: The same.
        num_kills: How often it was killed so far.
    """

    def __init__(self, host: Host, leaders: Leaders) -> None:
        self.host = host
        self.num_kills = 0
        self._leaders = leaders
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """Where it listens on its host; empty while it is away."""
        process = self._process
        return "" if process is None else process.url

    def start(self) -> None:
        """Starts it, unless it is there, and waits until it knows what the orchestrator offers. Before that it answers 503."""
        if self._process is None:
            with self.host.entered():
                process = self._leaders.gateway(self.host).__enter__()
                with dyorc.Client(process.url) as client:
                    wait_until(client.models, "it knows of models")
            self._process = process

    @contextlib.contextmanager
    def killed(self) -> Generator[None]:
        """It is away from here on, and dead at the end; whatever runs inside may kill it."""
        process, self._process = self._process, None
        self.num_kills += 1
        try:
            yield
        finally:
            if process is not None:
                process.process.kill()
                process.__exit__(None, None, None)


class Client:
    """Asks a gateway while entered.

    Attributes:
        latencies_s: Of requests that were answered.
        num_lost: Requests that were not, because their gateway was killed meanwhile.
        failed: Why others were not.
        wrong: Answers that were.
    """

    def __init__(self, gateway: GatewayOn, number: int) -> None:
        self.latencies_s: list[float] = []
        self.num_lost = 0
        self.failed: list[str] = []
        self.wrong: list[str] = []
        self._gateway = gateway
        self._seeds = itertools.count(number * _SEEDS_APART)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for_answers(self, num: int = 3) -> None:
        """Returns after so many more answers."""
        num_before = len(self.latencies_s)
        wait_until(lambda: len(self.latencies_s) >= num_before + num or not self._thread.is_alive(), "requests are answered")

    def _main(self) -> None:
        with self._gateway.host.entered():
            while not self._stopping.is_set():
                num_kills, url = self._gateway.num_kills, self._gateway.url
                if url:
                    self._ask(url, next(self._seeds), num_kills)
                else:
                    time.sleep(_POLL_S)

    def _ask(self, url: str, seed: int, num_kills: int) -> None:
        began_s = time.monotonic()
        try:
            with dyorc.Client(url, timeout_s=TIMEOUT_S, retries=_ONCE) as client:
                found = client.infer("carried_far", seed=np.asarray(seed))
        except Exception as error:
            if self._gateway.num_kills > num_kills:
                self.num_lost += 1
            else:
                self.failed.append(f"request {seed}: {type(error).__name__}: {error}")
            time.sleep(_REST_AFTER_FAILURE_S)
            return
        self.latencies_s.append(time.monotonic() - began_s)
        if int(found["checksum"]) != far.checksum_of(far.words_of(seed)):
            self.wrong.append(f"request {seed} got {found['checksum']}")
