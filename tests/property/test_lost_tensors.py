"""Lost tensors change no answer: random workflows whose large values stay with replicas that come and go."""

from collections import Counter
from typing import Any

from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from dyorc.config import SpeculationConfig
from dyorc.core.tensor import BlockId, blocks_of
from dyorc.engine.guessing.prediction import Predictor
from dyorc.errors import DyOrcError, ProgramError, ReplicaLostError
from tests.effort import examples
from tests.property.random_workflows import Numbers, Tree, inputs, meaning_of, send, trees, workflow_of
from tests.property.tallies import Tally, comes_across
from tests.property.test_speculation import (
    AGGRESSIVE,
    KINDS,
    OFF,
    Turmoil,
    alive,
    answers_of,
    predictor_of,
    without_collector,
)
from tests.unit.engine.dispatched import Dispatched

_MAX_LOSSES = 30
"""After this many losses nothing more is lost, so that every example ends."""


class Losses(Turmoil):
    """A turmoil in which tensors lie with the replicas that made them, and are lost with these or without.

    Only the results of `send` are spared: it cannot be made again, so its loss changes answers.
    """

    def __init__(
        self,
        speculation: SpeculationConfig,
        predictor: Predictor,
        seed: int,
        trouble: float,
        max_attempts: int = 10**6,
        **world: Any,
    ) -> None:
        world = {"is_placing": True, "is_fetching": False, "is_taking": False, **world}
        super().__init__(speculation, predictor, seed, trouble, max_attempts, **world)
        self.num_losses = 0

    def happen(self) -> bool:
        if self.num_losses < _MAX_LOSSES and self.random.random() < self.trouble:
            self.lose()
        if self.world.untaken and (not self.world.in_flight or self.random.random() < 0.3):
            self.seen.counts["answers lost"] += any(self.world.read(each)[1] != [] for each in self.world.untaken.values())
            self.world.take()
            return True
        self.seen.counts["fetches lost"] += any(self.world.read(each)[1] != [] for each in self.world.fetches.values())
        is_going_on = super().happen()
        self.seen.counts["restorations"] += sum(len(each.restoring) for each in self.world.engine.tasks.requests.values())
        return is_going_on or bool(self.world.untaken)

    def lose(self) -> None:
        """Lets a replica die, with or without a successor, or a block vanish, or a batch report that it cannot get its inputs."""
        world, kind = self.world, self.random.randrange(4)
        self.num_losses += 1
        mortal = [each for each in world.engine.scheduler.replicas.values() if each.pool.program is not send]
        blocks = [block for block in world.stored if block[0] and not block[0].startswith("send#")]
        if kind <= 1 and mortal:
            replica = self.random.choice(mortal)
            for batch in world.in_flight.values():
                if batch.action.replica_id == replica.replica_id:
                    self.note(self.lost, batch)
            self.seen.counts["replicas lost with tensors"] += any(block[0] == replica.replica_id for block in world.stored)
            world.leave(replica.replica_id)
            if not replica.pool.replicas or kind == 1:
                world.join(replica.pool.program, replica.replica_id if self.random.random() < 0.5 else "")
        elif kind == 2 and blocks:
            self.seen.counts["blocks vanished"] += 1
            world.vanish(self.random.choice(blocks))
        elif kind == 3 and world.in_flight:
            batch = self.random.choice(list(world.in_flight.values()))
            self.say_lost(batch, self.random.choice([[], [("nobody", 1)], self.blocks_of(batch)]))

    def finish(self, batch: Dispatched) -> None:
        gone = [block for block in self.blocks_of(batch) if block in self.world.gone]
        if not batch.lost and gone and self.random.random() < 0.5:
            self.seen.counts["batches too late"] += 1
            self.say_lost(batch, gone)
        else:
            self.seen.counts["batches that found a block vanished"] += bool(batch.lost)
            super().finish(batch)

    def say_lost(self, batch: Dispatched, blocks: list[BlockId]) -> None:
        self.note(self.lost, batch)
        self.world.lose_inputs(batch, [block for block in blocks if not block[0].startswith("send#")])

    @staticmethod
    def blocks_of(batch: Dispatched) -> list[BlockId]:
        return [block for operands in batch.action.operands for block in blocks_of(operands)]


_TALLY = Tally()


@comes_across(
    _TALLY, "answers lost", "fetches lost", "restorations", "replicas lost with tensors", "blocks vanished", "batches too late",
    "batches that found a block vanished", "speculations", "commits", "squashes", "guesses lost",
)  # fmt: skip
@settings(max_examples=examples(400))
@given(
    tree=trees,
    asked=st.lists(inputs, min_size=1, max_size=4),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    trouble=st.sampled_from([0.0, 0.1, 0.3]),
    is_storing=st.booleans(),
)
def test_lost_tensors_change_no_answer(
    tree: Tree, asked: list[Numbers], kind: str, seed: int, trouble: float, is_storing: bool
) -> None:
    meanings = [meaning_of(tree, x) for x in asked]
    assume(sum(meaning.num_calls for meaning in meanings) < 200)
    for speculation in (AGGRESSIVE, OFF):
        turmoil = Losses(speculation, predictor_of(kind, seed), seed, trouble, is_storing=is_storing)
        answers = answers_of(turmoil, tree, asked)
        assert answers == ["poison" if meaning.answer is None else meaning.answer for meaning in meanings]
        effects = sum((meaning.effects for meaning in meanings), Counter[tuple[str, Numbers]]())
        assert turmoil.effects.keys() == effects.keys()
        for effect, number in effects.items():
            assert turmoil.effects[effect] == number or (effect[0] == "put" and turmoil.effects[effect] > number)
        if not trouble:
            assert not turmoil.seen.counts["restorations"], "a tensor was released before its time"
        _TALLY.add(turmoil.seen.counts)


@settings(max_examples=examples(120), phases=[Phase.explicit, Phase.generate])
@given(
    tree=trees,
    asked=st.lists(inputs, min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    max_attempts=st.sampled_from([1, 3, 10**6]),
    num_events=st.integers(0, 30),
    end=st.sampled_from(["answer", "cancel", "deadline"]),
)
def test_a_request_with_lost_tensors_leaves_nothing_in_memory(
    tree: Tree, asked: list[Numbers], kind: str, seed: int, max_attempts: int, num_events: int, end: str
) -> None:
    """Whatever its end, even if it is given up after some attempts, nothing waits for the garbage collector."""
    assume(sum(meaning_of(tree, x).num_calls for x in asked) < 100)
    workflow = workflow_of(tree)
    with without_collector():
        before = alive()
        turmoil = Losses(AGGRESSIVE, predictor_of(kind, seed), seed, 0.3, max_attempts)
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
        for x, request_id in zip(asked, requests, strict=True):
            check_answer(turmoil.world.answers[request_id], meaning_of(tree, x).answer, end)
        turmoil.world.answers.clear()  # an error's traceback refers to frames, which are not the engine's
        turmoil.world.failed_effects.clear()
        left = alive() - before
    assert not left


def check_answer(answer: Any, meaning: Any, end: str) -> None:
    if isinstance(answer, ProgramError):
        assert meaning is None
    elif isinstance(answer, DyOrcError):
        assert isinstance(answer, ReplicaLostError) or end != "answer", repr(answer)
    else:
        assert tuple(answer[0].tolist()) == meaning
