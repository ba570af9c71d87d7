"""Clients in processes of their own, that send requests and jobs by HTTP and note what becomes of each."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import dyorc
from dyorc.client import Retries
from dyorc.errors import DyOrcError
from tests.whole_server.served import input_of, value_of
from tests.whole_server.world import VirtualProcess, World

TIMEOUT_S = 40.0
JOB_TIMEOUT_S = 60.0
_JOB_RATIO = 0.35
_RETRIES = Retries(max_attempts=12)


def _client_of(port: int) -> dyorc.AsyncClient:
    return dyorc.AsyncClient(f"http://127.0.0.1:{port}", timeout_s=TIMEOUT_S, retries=_RETRIES)


@dataclass
class Exchange:
    """A request, or a job.

    Attributes:
        outcome: ``answer``, or an error's code; empty while it is open.
        answer: What was answered.
        is_calm: Whether it was sent after the faults.
        sent_s: When it was sent, in virtual seconds.
        ended_s: When it ended.
        job_id: Of a job that was accepted.
    """

    model: str
    value: int
    is_job: bool
    is_calm: bool
    sent_s: float
    ended_s: float = 0.0
    outcome: str = ""
    text: str = ""
    answer: int | None = None
    num_endings: int = 0
    job_id: str = ""


@dataclass
class Ledger:
    """All exchanges of a run.

    Attributes:
        num_other_jobs: Jobs that were submitted besides.
    """

    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    num_other_jobs: int = 0

    def outcomes(self) -> Counter[str]:
        """Returns how many requests and jobs ended how."""
        kinds = ("job" if exchange.is_job else "request" for exchange in self.exchanges)
        return Counter(f"{kind}:{exchange.outcome}" for kind, exchange in zip(kinds, self.exchanges, strict=True))


class Client:
    """One client.

    Args:
        number: Makes its values unique.
        models: What it asks for.
        ports: Of the gateways.
        until_s: When the faults are over, and it sends its last requests.
    """

    def __init__(
        self, world: World, ledger: Ledger, number: int, seed: int, models: Sequence[str], ports: list[int], until_s: float
    ) -> None:
        self._world = world
        self._ledger = ledger
        self._number = number
        self._chance = random.Random(f"client {seed} {number}")
        self._models = models
        self._ports = ports
        self._until_s = until_s
        self._count = 0
        self._clients: dict[int, dyorc.AsyncClient] = {}

    def start(self) -> VirtualProcess:
        """Starts its process, which ends when all its exchanges have ended."""
        return self._world.start_process(f"client-{self._number}", lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for port in self._ports:
                self._clients[port] = await stack.enter_async_context(_client_of(port))
            async with asyncio.TaskGroup() as group:
                while self._world.elapsed_s < self._until_s:
                    await asyncio.sleep(self._chance.expovariate(1.2))
                    group.create_task(self._exchange(self._next(is_calm=False)))
            await asyncio.sleep(2 * 3.0)  # so that a leader is there again
            for model in self._models:
                await self._exchange(self._next(is_calm=True, model=model))

    def _next(self, *, is_calm: bool, model: str = "") -> Exchange:
        self._count += 1
        value = self._number * 1000 + self._count
        model = model or self._chance.choice(self._models)
        exchange = Exchange(model, value, self._chance.random() < _JOB_RATIO, is_calm, self._world.elapsed_s)
        self._ledger.exchanges.append(exchange)
        return exchange

    async def _exchange(self, exchange: Exchange) -> None:
        port = self._chance.choice(self._ports)
        kind = "job" if exchange.is_job else "request"
        self._world.log(f"sends {kind}", model=exchange.model, x=exchange.value, port=port)
        client = self._clients[port]
        try:
            if exchange.is_job:
                job = await client.submit(exchange.model, x=input_of(exchange.model, exchange.value))
                exchange.job_id = job.id
                answer = await job.result(timeout_s=JOB_TIMEOUT_S)
            else:
                answer = await client.infer(exchange.model, x=input_of(exchange.model, exchange.value))
            exchange.answer, exchange.outcome = value_of(answer), "answer"
        except DyOrcError as error:
            exchange.outcome, exchange.text = error.code, str(error)
        exchange.num_endings += 1
        exchange.ended_s = self._world.elapsed_s
        self._world.log(f"{kind} ends", x=exchange.value, outcome=exchange.outcome, answer=exchange.answer, error=exchange.text)
