"""Runs cases on a server, many requests of many workflows at a time."""

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import dyorc
from dyorc.client import Retries
from dyorc.errors import DyOrcError
from dyorc.testing import ServerProcess, serving
from tests.random_workflows.cases import FORCED, Answer, Case, Failure, Outcome, Parts, Request, Value, source_of

_NUM_AT_A_TIME = 32
_SPREAD = 6
"""Requests of so many workflows are mixed."""
_REQUEST_TIMEOUT_S = 60.0
_ONCE = Retries(max_attempts=1)
_EFFECTS_TIMEOUT_S = 20.0
_POLL_S = 0.05


def run_served(cases: Sequence[Case], num_effects: int, seed: int, *, in_process: bool) -> dict[str, Outcome]:
    """Serves cases together, on Ray or in a cell, and returns their outcomes by name. The server's counts are the first's.

    Args:
        num_effects: How many there have to be. Some happen after their answer: they are awaited for a while.
    """
    with tempfile.TemporaryDirectory(prefix="flows-", dir="/tmp") as folder:
        targets = _write(Path(folder), cases)
        environment = {f"DYORC_ENGINE__SPECULATION__{name.upper()}": str(value) for name, value in FORCED.items()}
        with serving(*targets, in_process=in_process, environment=environment) as server:
            guesses = {"num_speculations": 0, "num_squashes": 0}
            answers = asyncio.run(_ask(server, cases, random.Random(seed)))
            _await_effects(server, Path(folder), num_effects)
            if server.process.poll() is None:
                guesses = httpx.get(f"{server.url}/status", trust_env=False).json()["speculation"]
                server.stop()
        counts = Counter(guesses_followed=guesses["num_speculations"], guesses_wrong=guesses["num_squashes"])
        outcomes = _sort(cases, answers, _effects(Path(folder)))
        outcomes[cases[0].name].counts.update(counts)
        return outcomes


def _write(folder: Path, cases: Sequence[Case]) -> list[str]:
    """Writes a module for each case, and those that they import. Returns what to serve."""
    for name in ("programs", "effects"):
        (folder / f"{name}.py").write_text(source_of(name))
    for case in cases:
        (folder / f"{case.name}.py").write_text(case.source)
    return [f"{folder / case.name}.py:{case.name}" for case in cases]


async def _ask(server: ServerProcess, cases: Sequence[Case], rng: random.Random) -> dict[int, Answer]:
    """Sends all requests, those of neighbouring cases mixed. Returns the answers by ticket."""
    order = [(at + _SPREAD * rng.random(), case, request) for at, case in enumerate(cases) for request in case.requests]
    order.sort(key=lambda each: each[0])
    answers: dict[int, Answer] = {}
    waiting = iter(order)
    async with dyorc.AsyncClient(server.url, timeout_s=_REQUEST_TIMEOUT_S, retries=_ONCE) as client:

        async def ask_in_turn() -> None:
            for _, case, request in waiting:
                status = server.process.poll()
                answers[request.ticket] = (
                    await _answer(client, case, request) if status is None else Failure("dead", f"exit status {status}")
                )

        await asyncio.gather(*[ask_in_turn() for _ in range(_NUM_AT_A_TIME)])
    return answers


async def _answer(client: dyorc.AsyncClient, case: Case, request: Request) -> Answer:
    inputs: dict[str, Any] = {"x": request.x, "ticket": np.array(request.ticket, np.int64)}
    values: list[Value] = []
    try:
        if not case.is_streaming:
            return Value.of(await client.infer(case.name, inputs, **request.statics))
        async for part in client.stream(case.name, inputs, **request.statics):
            values.append(Value.of(part))
    except DyOrcError as error:
        return Parts(tuple(values), Failure.of(error)) if case.is_streaming else Failure.of(error)
    return Parts(tuple(values), None)


def _effects(folder: Path) -> list[str]:
    file = folder / "effects.txt"
    return file.read_text().splitlines() if file.exists() else []


def _await_effects(server: ServerProcess, folder: Path, num_effects: int) -> None:
    give_up_at_s = time.monotonic() + _EFFECTS_TIMEOUT_S
    while server.process.poll() is None and len(_effects(folder)) < num_effects and time.monotonic() < give_up_at_s:
        time.sleep(_POLL_S)


def _sort(cases: Sequence[Case], answers: dict[int, Answer], effects: Sequence[str]) -> dict[str, Outcome]:
    """Returns each case's answers and effects; the latter begin with the ticket of their request."""
    outcomes = {case.name: Outcome() for case in cases}
    owners = {request.ticket: case.name for case in cases for request in case.requests}
    for ticket, answer in answers.items():
        outcomes[owners[ticket]].answers[ticket] = answer
    for line in effects:
        outcomes[owners[int(line.partition(" ")[0])]].effects[line] += 1
    return outcomes
