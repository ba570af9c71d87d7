# pyright: basic
# Generated stubs have no types.
"""The load: clients that ask for every kind of request at every entrance, never try again, and note how each request ended.

Each client has one connection. A submission of a job is the only thing that is repeated, with its idempotency key, until the job
is accepted: what follows it to its end is `judgement.py`.
"""

import asyncio
import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc

import dyorc
from dyorc.client import Retries
from dyorc.errors import DyOrcError
from tests import oip_grpc
from tests.client_threads import ClientThreads
from tests.deadlines import TIMEOUT_S
from tests.storm.contract import CONNECTION, Entrance
from tests.storm.kinds import EFFECTS, GRPC_KINDS, JOB_KINDS, KINDS, fault_of, inputs_of, parameters_of

REQUEST_S = 120.0
"""How long a client waits for an answer."""
_ONCE = Retries(max_attempts=1)
_MAX_REST_S = 0.2
"""Between two requests of a client, or the machine would have no time left for processes that start."""
_REST_AFTER_FAILURE_S = 0.2
_POLL_S = 0.01
_CUT = ("the connection to ", "cannot connect to ", "the stream ended within a part", "the stream ended before")
_GRPC_CUT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""What gRPC itself says, if there is no code of ours."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended.

    Attributes:
        client: Who asked.
        entrance: Where.
        code: The error's code; empty if the answer was right.
        detail: The error, for people.
        pid: The process that has answered on this connection before; None on a new one.
    """

    client: int
    entrance: int
    kind: str
    number: int
    began_s: float
    ended_s: float
    code: str = ""
    detail: str = ""
    pid: int | None = None


@dataclass
class Ledger:
    """What all clients have noted. Any thread.

    Attributes:
        outcomes: Of all requests, in the order in which they ended.
        wrong: Each wrong answer.
        effects: How each request with an effect ended, by its number: answered or not.
        jobs: Accepted jobs: kind and number by id.
        keys: The ids under which each idempotency key was accepted.
    """

    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    outcomes: list[Outcome] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    effects: dict[int, tuple[str, bool]] = field(default_factory=dict)
    jobs: dict[str, tuple[str, int]] = field(default_factory=dict)
    keys: dict[str, set[str]] = field(default_factory=dict)
    answered: Counter[int] = field(default_factory=Counter)
    since_s: dict[int, float] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Notes how a request ended."""
        self.outcomes.append(outcome)
        if not outcome.code:
            self.answered[outcome.client] += 1
            self.since_s[outcome.client] = outcome.began_s


class Clients(ClientThreads):
    """Ask while entered: a thread for each entrance, with several clients.

    Args:
        folder: Where effects leave their lines, as the server sees it.
        num_clients: At each entrance; the last of them speaks gRPC.
    """

    def __init__(self, entrances: list[Entrance], folder: Path, ledger: Ledger, num_clients: int, seed: int) -> None:
        self._folder, self._ledger, self._num_clients, self._seed = folder, ledger, num_clients, seed
        self._may_go = threading.Event()
        self._may_go.set()
        self._busy: set[int] = set()
        self._is_broken_off = False
        self._numbers_of_clients = range(num_clients * len(entrances))
        super().__init__(partial(self._run_all, at, entrance) for at, entrance in enumerate(entrances))

    def __exit__(self, *error: Any) -> None:
        self._may_go.set()
        self._is_broken_off = error[0] is not None
        super().__exit__(*error)

    @contextlib.contextmanager
    def paused(self, timeout_s: float) -> Any:
        """Nobody asks meanwhile. Yields the clients that still wait for an answer after so long: there must be none."""
        self._may_go.clear()
        deadline_s = time.monotonic() + timeout_s
        while self._busy and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        yield sorted(self._busy)
        self._may_go.set()

    def wait_for_all(self, since_s: float, timeout_s: float) -> float | None:
        """Waits until each client has a right answer to a request that began after `since_s`. Returns when the last one had it;
        None if that does not come in time."""
        deadline_s = time.monotonic() + timeout_s
        while not all(self._ledger.since_s.get(client, 0.0) >= since_s for client in self._numbers_of_clients):
            if time.monotonic() > deadline_s or self.is_over.is_set():
                return None
            time.sleep(_POLL_S)
        first: dict[int, float] = {}
        for outcome in reversed(self._ledger.outcomes):
            if outcome.ended_s < since_s:
                break
            if not outcome.code and outcome.began_s >= since_s:
                first[outcome.client] = outcome.ended_s
        return max(first.values())

    def longest_unanswered_s(self) -> float:
        """Returns how long ago the last answered request began of the client for which that is longest: on a busy machine long,
        whatever happens."""
        now_s = time.monotonic()
        return max(now_s - self._ledger.since_s.get(client, now_s) for client in self._numbers_of_clients)

    def _run_all(self, at: int, entrance: Entrance) -> None:
        with entrance.entered():
            asyncio.run(self._run_together(at, entrance))

    async def _run_together(self, at: int, entrance: Entrance) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._num_clients):
                is_grpc = bool(entrance.grpc_address) and self._num_clients > 1 and number == self._num_clients - 1
                client = at * self._num_clients + number
                group.create_task(self._send_all(client, at, _GrpcDoor(entrance) if is_grpc else _HttpDoor(entrance)))

    async def _send_all(self, client: int, entrance: int, door: "_HttpDoor | _GrpcDoor") -> None:
        chance = random.Random(self._seed * 1000 + client)
        kinds = {kind: weight for kind, weight in KINDS.items() if door.takes(kind)}
        pending: tuple[str, int] | None = None
        async with door:
            while not self.is_over.is_set():
                if not self._may_go.is_set():
                    await asyncio.to_thread(self._may_go.wait)
                (kind,) = chance.choices(list(kinds), list(kinds.values()))
                number = next(self._ledger.numbers)
                self._busy.add(client)
                if kind == "job":
                    job = pending or (chance.choice(JOB_KINDS), number)
                    pending = job if (outcome := await self._submit(client, entrance, door, job)).code else None
                else:
                    outcome = await self._ask(client, entrance, door, kind, number)
                self._busy.discard(client)
                self._ledger.add(outcome)
                await asyncio.sleep(_REST_AFTER_FAILURE_S if outcome.code else chance.uniform(0, _MAX_REST_S))
            give_up_at_s = time.monotonic() + TIMEOUT_S
            while pending is not None and not self._is_broken_off:  # whether it was accepted has to be known
                if time.monotonic() > give_up_at_s:
                    self._ledger.wrong.append(f"the job of {pending[1]} was not accepted, or refused, within {TIMEOUT_S:g} s")
                    break
                pending = pending if (await self._submit(client, entrance, door, pending)).code else None
                await asyncio.sleep(_REST_AFTER_FAILURE_S)

    async def _ask(self, client: int, entrance: int, door: "_HttpDoor | _GrpcDoor", kind: str, number: int) -> Outcome:
        began_s, pid, code, detail = time.monotonic(), door.pid, "", ""
        if kind in EFFECTS:
            self._ledger.effects[number] = (kind, False)
        try:
            answer = await door.ask(kind, number, str(self._folder))
            if fault := fault_of(kind, number, answer):
                self._ledger.wrong.append(fault)
            if kind in EFFECTS:
                self._ledger.effects[number] = (kind, True)
        except Exception as error:
            code, detail = _code_of(error), f"{type(error).__name__}: {error}"
        return Outcome(client, entrance, kind, number, began_s, time.monotonic(), code, detail[:300], pid)

    async def _submit(self, client: int, entrance: int, door: Any, job: tuple[str, int]) -> Outcome:
        began_s, pid, code, detail = time.monotonic(), door.pid, "", ""
        kind, number = job
        try:
            job_id = await door.submit(kind, number, str(self._folder))
            self._ledger.jobs[job_id] = job
            self._ledger.keys.setdefault(str(number), set()).add(job_id)
        except Exception as error:
            code, detail = _code_of(error), f"{type(error).__name__}: {error}"
        return Outcome(client, entrance, "job", number, began_s, time.monotonic(), code, detail[:300], pid)


def _code_of(error: Exception) -> str:
    """Returns the code of an error that the server has sent, or `CONNECTION`."""
    if isinstance(error, grpc.RpcError):
        trailers = dict(error.trailing_metadata() or ())  # type: ignore[attr-defined]
        return str(trailers.get("dyorc-code") or (CONNECTION if error.code() in _GRPC_CUT else f"grpc {error.code().name}"))  # type: ignore[attr-defined]
    if isinstance(error, DyOrcError):
        return CONNECTION if error.code == "transport" and str(error).startswith(_CUT) else error.code
    return f"client: {type(error).__name__}"


class _HttpDoor:
    """One connection by HTTP. `pid`: which process has answered on it."""

    def __init__(self, entrance: Entrance) -> None:
        self._url = entrance.url
        self.pid: int | None = None

    def takes(self, kind: str) -> bool:
        return True

    async def __aenter__(self) -> "_HttpDoor":
        self._client = dyorc.AsyncClient(self._url, retries=_ONCE, timeout_s=REQUEST_S, max_connections=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, kind: str, number: int, folder: str) -> Any:
        inputs = inputs_of(kind, number) | parameters_of(kind, folder)
        if kind == "streamed":
            return [part async for part in self._client.stream(kind, inputs)]
        try:
            answer = await self._client.infer(kind, inputs)
        except DyOrcError as error:
            if _code_of(error) == CONNECTION:
                self.pid = None
            raise
        if kind == "plain":
            self.pid = int(answer["pid"])
            return answer["y"]
        return answer

    async def submit(self, kind: str, number: int, folder: str) -> str:
        inputs = inputs_of(kind, number) | parameters_of(kind, folder)
        return (await self._client.submit(kind, inputs, idempotency_key=f"job {number}")).id


class _GrpcDoor:
    """One connection by gRPC, for requests with one answer."""

    pid: int | None = None

    def __init__(self, entrance: Entrance) -> None:
        self._address = entrance.grpc_address

    def takes(self, kind: str) -> bool:
        return kind in GRPC_KINDS

    async def __aenter__(self) -> "_GrpcDoor":
        # By itself a channel waits longer and longer before it connects again, up to two minutes.
        options = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.initial_reconnect_backoff_ms", 50)]
        limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.aio.insecure_channel(self._address, options=[*options, *limits])
        self._stub = oip_grpc.GRPCInferenceServiceStub(self._channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def ask(self, kind: str, number: int, folder: str) -> Any:
        request = oip_grpc.request(kind, inputs_of(kind, number), **parameters_of(kind, folder))
        outputs = oip_grpc.outputs_of(await self._stub.ModelInfer(request, timeout=REQUEST_S))
        return outputs["y" if kind == "plain" else "output"]
