"""Guesses change no answer: random workflows, under any order of events and any predictions, do what they mean."""

import gc
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from dyorc.authoring.decisions import Decision, DecisionKind
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.core.arrays import apply_views, as_value
from dyorc.engine.actions import FormReason
from dyorc.engine.guessing.prediction import Distribution, HistoryPredictor, Predictor
from dyorc.engine.model.futures import Argument, Future, FutureState, Outcome
from dyorc.engine.model.journal import BranchPoint, Context, Segment, StreamPart
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.request_tree import Request, Restoration, StreamProgress, Task
from dyorc.engine.tasks.execution_paths import ExecutionPath
from dyorc.engine.tasks.generators import Generating
from dyorc.errors import DyOrcError, ProgramError
from tests.effort import examples
from tests.property.random_workflows import (
    PROGRAMS,
    Numbers,
    Tree,
    evaluate,
    inputs,
    meaning_of,
    trees,
    workflow_of,
)
from tests.property.tallies import Tally, comes_across
from tests.unit.engine.dispatched import Dispatched
from tests.unit.engine.driver import World

AGGRESSIVE = SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)
OFF = SpeculationConfig(enabled=False)


class Foreteller:
    """Knows outcomes as far as they follow from calls under way, and predicts them, or the opposite, or anything.

    Args:
        kind: "right", "wrong" or "random"; with "sure" behind it, one outcome has the probability 1.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, _, sure = kind.partition(" ")
        self._is_sure = bool(sure)
        self._random = random.Random(seed)

    def predict(self, decision: Decision, context: Context) -> Distribution:
        possible: list[Outcome] = [True, False] if decision.kind is DecisionKind.WHEN else [0, 1, 2, 3, 4]
        self._random.shuffle(possible)
        known = None if self._kind == "random" else outcome_of(decision)
        if known is not None:
            possible.remove(known[0])
            possible.insert(0 if self._kind == "right" else len(possible), known[0])
        if self._is_sure:
            return {possible[0]: 1.0}
        return dict(zip(possible, (0.6, 0.2, 0.1, 0.05, 0.05), strict=False))

    def observe(self, decision: Decision, context: Context, outcome: Outcome) -> None:
        pass


def outcome_of(decision: Decision) -> tuple[Outcome] | None:
    """Returns what a decision will be, in a tuple; None if that cannot be known."""
    (ref,) = decision.refs  # decisions about lists are never guessed
    value = value_of(ref.future)
    if value is None:
        return None
    array = np.array(value, np.float32)
    return (decision.decide([as_value(apply_views(array, ref.views) if ref.views else array)]),)


def value_of(future: Future) -> Numbers | None:
    if future.is_at_hand:
        return tuple(future.array(0).tolist())
    if future.state is FutureState.FAILED or not isinstance(future.producer, Call):
        return None
    operands = [value_of(argument.future) for argument in future.producer.arguments]
    known = [operand for operand in operands if operand is not None]
    return evaluate(future.producer.callee, *known) if len(known) == len(operands) else None


KINDS = ("learned", "right", "wrong", "random", "right sure", "wrong sure")


def predictor_of(kind: str, seed: int) -> Predictor:
    return HistoryPredictor() if kind == "learned" else Foreteller(kind, seed)


@dataclass
class Seen:
    """Counts what happened to guesses, so that a test can tell that it tested something."""

    counts: Counter[str] = field(default_factory=Counter[str])


class Turmoil:
    """A world in which batches end in any order, and fail or lose their replicas where that must not matter.

    Args:
        seed: Of what happens.
        trouble: Probability that something goes wrong.
        max_attempts: How many times the same may go wrong; unbounded by default.
        max_untaken_parts: Of a request.
    """

    def __init__(
        self,
        speculation: SpeculationConfig,
        predictor: Predictor,
        seed: int,
        trouble: float = 0.0,
        max_attempts: int = 10**6,
        max_untaken_parts: int = 16,
        **world: Any,
    ) -> None:
        self.random = random.Random(seed)
        config = EngineConfig(
            max_attempts=max_attempts, max_deaths=10**6, request_timeout_s=1e8,
            max_determinism_checks=10**6, speculation=speculation, max_untaken_parts=max_untaken_parts,
            max_steps_per_turn=self.random.choice([1, 3, 256]),
        )  # fmt: skip
        self.world = World(PROGRAMS, config, predictor=predictor, **world)
        self.num_cores = self.random.choice([0, 1, 3, 8])
        self.trouble = trouble
        self.seen = Seen()
        self.effects: Counter[tuple[str, Numbers]] = Counter()
        """Of batches that ran to their end."""
        self.lost: Counter[tuple[str, Numbers]] = Counter()
        """Of batches that were lost or made to fail, where that is allowed."""
        for program in PROGRAMS:
            for _ in range(self.random.randrange(1, 3)):
                self.world.join(program, num_cores=self.num_cores)
            pool = self.world.engine.scheduler.pools[program.name]
            for size in (1, 2):
                pool.latency.observe(size, 0.1 + 0.02 * size)
            pool.sojourn_ns.add(0.12e9)
            pool.demand.add(0, 0)  # its rate is known: 0

    def run(self) -> None:
        """Plays events until nothing happens any more."""
        for _ in range(5000):
            if not self.happen():
                return
        raise AssertionError("after 5000 events there is still something to do")

    def happen(self) -> bool:
        """Plays one event; returns False if there is none."""
        world = self.world
        self.look()
        takable = world.takable()
        if takable and (not world.in_flight or self.random.random() < 0.3):
            self.seen.counts["parts lost"] += not world.take_part(self.random.choice(takable))
        elif world.fetches and (not world.in_flight or self.random.random() < 0.5):
            world.fetch()
        elif world.in_flight:
            self.finish(self.random.choice(list(world.in_flight.values())))
        elif world.engine.tasks.requests:
            assert world.wake_ns is not None, "requests wait for nothing"
            world.advance((world.wake_ns - world.now_ns) / 1e9 + 1e-6)
        else:
            return False
        if self.random.random() < 0.3:
            world.advance(self.random.choice([0.001, 0.05, 0.2]))
        return True

    def let_deadlines_pass(self) -> None:
        """Lets so much time pass that replicas that hold a batch count as hung; others take their place."""
        self.world.advance(1e9)
        for program in PROGRAMS:
            if not self.world.engine.scheduler.pools[program.name].replicas:
                self.world.join(program, num_cores=self.num_cores)

    def finish(self, batch: Dispatched) -> None:
        program = batch.action.program
        calls = self.world.engine.scheduler.batches[batch.action.batch_id].calls
        num_guesses = sum(call.is_guess and call.state is CallState.RUNNING for call in calls)
        is_harmless = program.options.is_repeatable and (batch.size > 1 or num_guesses == batch.size)
        happens = self.random.random()
        if happens < self.trouble and program.options.is_repeatable:
            for other in self.world.in_flight.values():
                if other.action.replica_id == batch.action.replica_id:
                    self.note(self.lost, other)
            self.seen.counts["guesses lost"] += num_guesses
            self.world.leave(batch.action.replica_id)
            self.world.join(program, num_cores=self.num_cores)
        elif happens < 2 * self.trouble and is_harmless:
            self.note(self.lost, batch)
            self.seen.counts["guesses failed"] += num_guesses
            self.world.fail(batch)
        else:
            self.note(self.effects, batch)
            self.world.finish(batch, execute_s=self.random.choice([0.05, 0.1, 0.5]))

    @staticmethod
    def note(where: Counter[tuple[str, Numbers]], batch: Dispatched) -> None:
        if not batch.action.program.options.pure:
            where.update((batch.program, tuple(values)) for values in batch.column())

    def look(self) -> None:
        """Counts the current guesses."""
        for request in self.world.engine.tasks.requests.values():
            assert request.root is not None
            for task in [request.root, *(entry for entry in request.root.entries() if isinstance(entry, Task))]:
                depth = max((len(path.assumed) for path in task.paths), default=0)
                self.seen.counts["nested guesses"] += depth > 1
                self.seen.counts["guesses in tasks"] += depth > 0 and task is not request.root
                self.seen.counts["both sides"] += len(task.paths) > 1
                self.seen.counts["runs that wait for room"] += any(path.awaits_room for path in task.paths)
                self.seen.counts["guesses that wait for room"] += any(path.awaits_room and path.assumed for path in task.paths)
                self.seen.counts["parts on guesses"] += any(path.assumed and path.num_parts for path in task.paths)

    def check_end(self) -> None:
        """Checks that nothing is left, and that there are as many effects as there have to be."""
        self.world.check_nothing_is_left()
        engine = self.world.engine
        assert engine.speculator.num_speculations == engine.speculator.num_commits + engine.speculator.num_squashes
        dispatched: Counter[tuple[str, Numbers]] = Counter()
        for batch in self.world.history:
            self.note(dispatched, batch)
        assert dispatched == self.effects + self.lost
        self.seen.counts["speculations"] += engine.speculator.num_speculations
        self.seen.counts["commits"] += engine.speculator.num_commits
        self.seen.counts["squashes"] += engine.speculator.num_squashes
        self.seen.counts["bets alone"] += sum(batch.action.reason is FormReason.GUESSED for batch in self.world.history)


Answers: TypeAlias = list[Numbers | str]


def answers_of(turmoil: Turmoil, tree: Tree, asked: Sequence[Numbers]) -> Answers:
    """Runs requests, some at a time."""
    workflow, world = workflow_of(tree), turmoil.world
    left = list(asked)
    while left:
        num_now = turmoil.random.randint(1, len(left))
        world.submit_all(workflow, left[:num_now])
        del left[:num_now]
        for _ in range(turmoil.random.choice([0, 3, 1000])):
            if not turmoil.happen():
                break
    turmoil.run()
    turmoil.check_end()
    return [answer_of(world, request_id) for request_id in range(1, len(asked) + 1)]


def answer_of(world: World, request_id: int) -> Numbers | str:
    answer = world.answers[request_id]
    if isinstance(answer, DyOrcError):
        assert isinstance(answer, ProgramError), f"{answer!r}"
        assert answer.error_type == "ValueError", f"{answer!r}"
        return "poison"
    return tuple(answer[0].tolist())


_TALLY = Tally()


@comes_across(
    _TALLY, "speculations", "commits", "squashes", "bets alone", "nested guesses", "guesses in tasks", "both sides",
    "guesses lost", "guesses failed",
)  # fmt: skip
@settings(max_examples=examples(500))
@given(
    tree=trees,
    asked=st.lists(inputs, min_size=1, max_size=4),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    trouble=st.sampled_from([0.0, 0.1, 0.3]),
    world=st.sampled_from([{}, {"is_storing": True}, {"is_storing": True, "is_fetching": False}]),
)
def test_guesses_change_neither_answers_nor_effects(
    tree: Tree, asked: list[Numbers], kind: str, seed: int, trouble: float, world: dict[str, bool]
) -> None:
    meanings = [meaning_of(tree, x) for x in asked]
    assume(sum(meaning.num_calls for meaning in meanings) < 200)
    for speculation in (AGGRESSIVE, OFF):
        turmoil = Turmoil(speculation, predictor_of(kind, seed), seed, trouble, **world)
        answers = answers_of(turmoil, tree, asked)
        assert answers == ["poison" if meaning.answer is None else meaning.answer for meaning in meanings]
        assert turmoil.effects == sum((meaning.effects for meaning in meanings), Counter())
        _TALLY.add(turmoil.seen.counts)


# Memory

_OWN_TYPES = (
    Request,
    Task,
    ExecutionPath,
    Segment,
    BranchPoint,
    Call,
    Future,
    Argument,
    Restoration,
    StreamPart,
    StreamProgress,
    Generating,
)


@contextmanager
def without_collector() -> Iterator[None]:
    """Turns the garbage collector off while entered: only reference counts free memory, so a cycle stays.

    Objects from before are hidden from the collector (`thawed` brings it back): to look at a few hundred new objects
    instead of half a million makes an example twenty times as fast.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive() -> Counter[str]:
    """Returns the objects of requests that are in memory, except those from before `without_collector`."""
    return Counter(type(thing).__name__ for thing in gc.get_objects() if type(thing) in _OWN_TYPES)


@settings(max_examples=examples(120), phases=[Phase.explicit, Phase.generate])
@given(
    tree=trees,
    asked=st.lists(inputs, min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    trouble=st.sampled_from([0.0, 0.2]),
    num_events=st.integers(0, 25),
    end=st.sampled_from(["answer", "cancel", "deadline"]),
)
def test_a_request_that_has_ended_leaves_nothing_in_memory(
    tree: Tree, asked: list[Numbers], kind: str, seed: int, trouble: float, num_events: int, end: str
) -> None:
    """Nothing may be left to the garbage collector either, whose pauses grow with the objects it visits."""
    assume(sum(meaning_of(tree, x).num_calls for x in asked) < 100)
    workflow = workflow_of(tree)
    with without_collector():
        before = alive()
        turmoil = Turmoil(AGGRESSIVE, predictor_of(kind, seed), seed, trouble, is_storing=True, is_fetching=False)
        requests = turmoil.world.submit_all(workflow, asked)
        for _ in range(num_events):
            turmoil.happen()
        if end == "cancel":
            for request_id in requests:
                turmoil.world.cancel(request_id)
        elif end == "deadline":
            turmoil.let_deadlines_pass()
        turmoil.run()
        turmoil.world.check_nothing_is_left()
        turmoil.world.failed_effects.clear()
        turmoil.world.answers.clear()  # an error's traceback refers to frames, which are not the engine's
        left = alive() - before
    assert not left
