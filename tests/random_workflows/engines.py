"""Runs cases in this process: by `dyorc.run`, and by an engine that is made to guess at every decision."""

import random
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import dyorc
from dyorc.authoring.decisions import Decision
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.engine_context import Host
from dyorc.engine.guessing.prediction import Distribution, HistoryPredictor
from dyorc.engine.model.futures import Outcome as Key
from dyorc.engine.model.journal import Context
from dyorc.errors import DyOrcError
from tests.random_workflows.cases import FORCED, Answer, Case, Failure, Outcome, Parts, Request, Value, load, source_of
from tests.unit.engine.driver import World

_MAX_EVENTS = 20_000

_effects: list[str] = []


async def _pause() -> None:
    """Waits for nothing: the test's process runs such calls step by step."""


_programs = load(
    "programs", source_of("programs"), {"dyorc": dyorc, "effects": types.SimpleNamespace(note=_effects.extend, pause=_pause)}
)


def run_each(case: Case, seed: int) -> Outcome:
    """Runs a case's requests by `dyorc.run`, one after another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of effects that fail and that nobody awaits
        flow = getattr(load(case.name, case.source, {"dyorc": dyorc, "programs": _programs}), case.name)
        outcome = Outcome()
        _effects.clear()
        for request in case.requests:
            ask = partial(dyorc.run, flow, request.x, request.ticket, **request.statics)
            outcome.answers[request.ticket] = _parts_of(ask()) if case.is_streaming else _answer_of(ask)
        outcome.effects.update(_effects)
        return outcome


def run_together(case: Case, seed: int) -> Outcome:
    """Runs a case's requests at once in an engine that guesses at every decision, often wrong; batches end in a random order."""
    rng = random.Random(f"{seed} {case.source.replace(case.name, '')}")  # the same for a case that was renamed
    flow: Workflow = getattr(load(case.name, case.source, {"dyorc": dyorc, "programs": _programs}), case.name)
    world = _world_of(flow, rng)
    ids: dict[int, Request] = {}
    waiting = list(case.requests)
    losses = _Losses(world, rng)
    _effects.clear()
    for _ in range(_MAX_EVENTS):
        losses.lose()
        if waiting and (rng.random() < 0.5 or not world.in_flight):
            some = [waiting.pop() for _ in range(min(len(waiting), rng.choice([1, 2, 4])))]
            events = [world.arrival(flow, each.x, np.int64(each.ticket), **each.statics) for each in some]
            ids |= {event.request_id: each for event, each in zip(events, some, strict=True)}
            world.tell(*events)
        elif not _go_on(world, rng):
            break
    else:
        raise AssertionError("it does not end")
    world.check_nothing_is_left()
    outcome = Outcome(effects=Counter(_effects))
    for request_id, request in ids.items():
        outcome.answers[request.ticket] = _world_answer(world, request_id)
    speculator = world.engine.speculator
    outcome.counts.update(guesses_followed=speculator.num_speculations, guesses_wrong=speculator.num_squashes)
    return outcome


def _world_of(flow: Workflow, rng: random.Random) -> World:
    """Returns a world whose engine knows how long programs take, so that it guesses from the first decision on."""
    config = EngineConfig(
        speculation=SpeculationConfig(**FORCED), request_timeout_s=1e8, max_steps_per_turn=rng.choice([1, 3, 256]),
        max_untaken_parts=rng.choice([1, 2, 16]), max_attempts=10**6, max_deaths=10**6,
    )  # fmt: skip
    storage = rng.choice([{}, {}, {"is_storing": True}, {"is_placing": True}])
    is_slow = rng.random() < 0.5
    world = World(
        flow.programs, config, predictor=_Shuffled(rng), host=Host(), is_taking=not is_slow,
        is_fetching=not is_slow or rng.random() < 0.5, **storage,
    )  # fmt: skip
    for program in flow.programs:
        for _ in range(1 if program.options.group else rng.choice([1, 1, 2])):
            world.join(program, process="P0" if program.options.group else "")
        pool = world.engine.scheduler.pools[program.name]
        for size in (1, 2):
            pool.latency.observe(size, 0.1 + 0.02 * size)
        pool.sojourn_ns.add(0.12e9)
        pool.demand.add(0, 0)  # its rate is known: 0
    if rng.random() < 0.5:
        _join_process(world, "P1")
    return world


def _join_process(world: World, process: str) -> None:
    for program in world.programs:
        if program.options.group:
            world.join(program, process=process)


def _go_on(world: World, rng: random.Random) -> bool:
    """Ends a batch or reads what is there; if there is nothing, lets time pass. Returns False if nothing is left to do."""
    ready = [batch for batch in world.in_flight.values() if world.can_go_on(batch)]
    takable = world.takable()
    if takable and (not ready or rng.random() < 0.3):
        world.take_part(rng.choice(takable))
    elif world.untaken and (not ready or rng.random() < 0.3):
        world.take()
    elif world.fetches and (not ready or rng.random() < 0.5):
        world.fetch()
    elif ready:
        world.finish(rng.choice(ready), execute_s=rng.choice([0.05, 0.1, 0.5]))
    elif world.engine.tasks.requests:
        assert world.wake_ns is not None, "requests wait for nothing"
        assert world.wake_ns < 1e16, "requests wait for their deadlines"
        world.advance((world.wake_ns - world.now_ns) / 1e9 + 1e-6)
    else:
        return False
    return True


class _Losses:
    """Lets replicas without effects, and processes that hold residents, die now and then."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._num_left = rng.choice([0, 0, 2, 6])
        self._num_processes = 2

    def lose(self) -> None:
        """Perhaps lets one die, and another take its place."""
        world, rng = self._world, self._rng
        if not self._num_left or rng.random() > 0.05:
            return
        self._num_left -= 1
        replica = rng.choice(list(world.engine.scheduler.replicas.values()))
        program = replica.pool.program
        if program.options.group:
            process = world.process_of[replica.replica_id]
            for replica_id in [each for each in world.engine.scheduler.replicas if world.process_of[each] == process]:
                world.leave(replica_id)
            _join_process(world, f"P{self._num_processes}")
            self._num_processes += 1
        elif program.options.pure:
            world.leave(replica.replica_id)
            world.join(program)


class _Shuffled(HistoryPredictor):
    """Knows what may come, and thinks anything of it likely."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def predict(self, decision: Decision, context: Context) -> Distribution:
        distribution = super().predict(decision, context)
        keys: list[Key] = list(distribution)
        self._rng.shuffle(keys)
        return dict(zip(keys, (0.5, 0.3, 0.1, 0.05, 0.04), strict=False))


def _answer_of(ask: Callable[[], Any]) -> Answer:
    try:
        return Value.of(ask())
    except DyOrcError as error:
        return Failure.of(error)


def _parts_of(parts: Iterator[Any]) -> Parts:
    values: list[Value] = []
    try:
        values.extend(map(Value.of, parts))
    except DyOrcError as error:
        return Parts(tuple(values), Failure.of(error))
    return Parts(tuple(values), None)


def _world_answer(world: World, request_id: int) -> Answer:
    answer = world.answers[request_id]
    failure = Failure.of(answer) if isinstance(answer, DyOrcError) else None
    if world.workflows[request_id].is_streaming:
        return Parts(tuple(map(Value.of, world.part_values(request_id))), failure)
    return failure or Value.of(world.result(request_id))
