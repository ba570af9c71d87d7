"""Runs cases in this process: by `dyorc.run`, and by an engine that is made to guess at every decision."""

import random
import types
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import dyorc
from dyorc.authoring.decisions import Decision
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.guessing.prediction import Distribution, HistoryPredictor
from dyorc.engine.model.futures import Outcome as Key
from dyorc.engine.model.journal import Context
from dyorc.errors import DyOrcError
from tests.random_workflows.cases import FORCED, Answer, Case, Failure, Outcome, Request, Value, load, source_of
from tests.unit.engine.driver import World

_MAX_EVENTS = 20_000

_effects: list[str] = []
_programs = load("programs", source_of("programs"), {"dyorc": dyorc, "effects": types.SimpleNamespace(note=_effects.extend)})


def run_each(case: Case, seed: int) -> Outcome:
    """Runs a case's requests by `dyorc.run`, one after another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of effects that fail and that nobody awaits
        flow = getattr(load(case.name, case.source, {"dyorc": dyorc, "programs": _programs}), case.name)
        outcome = Outcome()
        _effects.clear()
        for request in case.requests:
            outcome.answers[request.ticket] = _answer_of(partial(dyorc.run, flow, request.x, request.ticket, **request.statics))
        outcome.effects.update(_effects)
        return outcome


def run_together(case: Case, seed: int) -> Outcome:
    """Runs a case's requests at once in an engine that guesses at every decision, often wrong; batches end in a random order."""
    rng = random.Random(f"{seed} {case.source.replace(case.name, '')}")  # the same for a case that was renamed
    flow: Workflow = getattr(load(case.name, case.source, {"dyorc": dyorc, "programs": _programs}), case.name)
    world = _world_of(flow, rng)
    ids: dict[int, Request] = {}
    waiting = list(case.requests)
    _effects.clear()
    for _ in range(_MAX_EVENTS):
        if waiting and (rng.random() < 0.5 or not world.in_flight):
            some = [waiting.pop() for _ in range(min(len(waiting), rng.choice([1, 2, 4])))]
            events = [world.arrival(flow, each.x, np.int64(each.ticket), **each.statics) for each in some]
            ids |= {event.request_id: each for event, each in zip(events, some, strict=True)}
            world.tell(*events)
        elif not _go_on(world, rng):
            break
    world.check_nothing_is_left()
    outcome = Outcome(effects=Counter(_effects))
    for request_id, request in ids.items():
        outcome.answers[request.ticket] = _answer_of(partial(world.result, request_id))
    speculator = world.engine.speculator
    outcome.counts.update(guesses_followed=speculator.num_speculations, guesses_wrong=speculator.num_squashes)
    return outcome


def _world_of(flow: Workflow, rng: random.Random) -> World:
    """Returns a world whose engine knows how long programs take, so that it guesses from the first decision on."""
    config = EngineConfig(
        speculation=SpeculationConfig(**FORCED), request_timeout_s=1e8, max_steps_per_turn=rng.choice([1, 3, 256])
    )
    world = World(flow.programs, config, predictor=_Shuffled(rng), is_storing=rng.random() < 0.3)
    for program in flow.programs:
        for _ in range(rng.choice([1, 1, 2])):
            world.join(program)
        pool = world.engine.scheduler.pools[program.name]
        for size in (1, 2):
            pool.latency.observe(size, 0.1 + 0.02 * size)
        pool.sojourn_ns.add(0.12e9)
        pool.demand.add(0, 0)  # its rate is known: 0
    return world


def _go_on(world: World, rng: random.Random) -> bool:
    """Ends a batch or, if there is none, lets time pass. Returns False if nothing is left to do."""
    if world.in_flight:
        world.finish(rng.choice(list(world.in_flight.values())), execute_s=rng.choice([0.05, 0.1, 0.5]))
    elif world.engine.tasks.requests:
        assert world.wake_ns is not None, "requests wait for nothing"
        world.advance((world.wake_ns - world.now_ns) / 1e9 + 1e-6)
    else:
        return False
    return True


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
