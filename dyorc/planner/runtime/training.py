"""Runs and trains by a plan on real ranks, once it is proved. Any other plan of the model can go on from a checkpoint."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dyorc.errors import PlanError
from dyorc.planner.plan import Plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.runtime.job_turns import JobTurns
from dyorc.planner.runtime.rank_messages import Update
from dyorc.planner.runtime.ranks import RankOptions, Ranks, RunResult
from dyorc.planner.verify import verify

_MAX_BEGUN = 2
"""Steps whose inputs are sent ahead, so that ranks need not wait for their parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained, and how.

    Attributes:
        steps: How many steps are in the parameters in the end, those of a checkpoint that it goes on from included.
        learning_rate: Of plain gradient descent, for programs without an update of their own.
        overlap: Whether communication runs during computation.
        paces: How long emulated devices take, as `paces_of` has it from a cluster; empty for real ones.
        resume: A checkpoint to go on from.
        checkpoint: Where to write checkpoints; None for nowhere.
        checkpoint_every: After how many steps; 0 for the last only.
    """

    steps: int
    learning_rate: float = 0.1
    overlap: bool = True
    paces: Sequence[tuple[int, int, float]] = ()
    resume: Path | None = None
    checkpoint: Path | None = None
    checkpoint_every: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What training gave.

    Attributes:
        first_step: Where it began: 0, or the step of the checkpoint.
        losses: Of each step.
        step_s: Of each step, the seconds of the slowest rank.
        peak_bytes: The most that each rank's pieces took at a time.
        sources: The parameters, buffers and states in the end, whole.
    """

    first_step: int
    losses: tuple[float, ...]
    step_s: tuple[float, ...]
    peak_bytes: tuple[int, ...]
    sources: Mapping[str, torch.Tensor]


def train_on(
    ranks: Ranks,
    plan: Plan,
    program: TensorProgram,
    sources: Mapping[str, torch.Tensor],
    make_batch: Callable[[int], Mapping[str, torch.Tensor]],
    training: Training,
) -> Trained:
    """Trains on a group of ranks.

    Args:
        ranks: Have started.
        plan: Of the program.
        program: Says what is the loss, and which gradient or new value belongs to which source.
        sources: Parameters, buffers and states to begin with, whole; not used when going on from a checkpoint.
        make_batch: Returns the inputs of a step, by name; called in this process, in order.
        training: How.

    Raises:
        PlanError: The plan is for another program.
        CheckpointError: The checkpoint to go on from is not whole, or not of this model.
        PlanRunError: A rank raised, died or did not go on.
    """
    first = load_training(ranks, plan, program, sources, training)
    ran = list(steps_of(ranks, program, make_batch, training, first))
    return Trained(
        first_step=first,
        losses=tuple(float(each.results[program.loss]) for each in ran),
        step_s=tuple(max(each.seconds) for each in ran),
        peak_bytes=tuple(max(column) for column in zip(*(each.peak_bytes for each in ran), strict=True)),
        sources=ranks.fetch(),
    )


def load_training(
    ranks: Ranks,
    plan: Plan,
    program: TensorProgram,
    sources: Mapping[str, torch.Tensor],
    training: Training,
    turns: JobTurns | None = None,
) -> int:
    """Gives ranks what they need for training, and returns how many steps are done already. `train_on` says what is what.

    Args:
        turns: Of all jobs that train on the same devices.
    """
    plan.check_program(program)
    updates = updates_of(plan, program, training.learning_rate)
    resume, paces = training.resume, training.paces
    first = ranks.load(plan, sources, overlap=training.overlap, updates=updates, checkpoint=resume, paces=paces, turns=turns)
    if first > training.steps:
        raise PlanError(f"the checkpoint has {first} steps, and {training.steps} are wanted")
    return first


def steps_of(
    ranks: Ranks,
    program: TensorProgram,
    make_batch: Callable[[int], Mapping[str, torch.Tensor]],
    training: Training,
    first: int,
) -> Iterator[RunResult]:
    """Trains step after step on ranks that have loaded it, and yields what each step gave."""
    num_begun = first
    for step in range(first, training.steps):
        while num_begun < min(step + _MAX_BEGUN, _next_due(step, training)):
            ranks.begin_step(make_batch(num_begun), [program.loss])
            num_begun += 1
        ran = ranks.end_step()
        if training.checkpoint is not None and _is_due(step + 1, training):
            ranks.save(training.checkpoint, step + 1)
        yield ran


def updates_of(plan: Plan, program: TensorProgram, learning_rate: float) -> tuple[Update, ...]:
    """Returns what happens to the sources after each step: the program's own updates, else gradient descent."""
    rate = None if program.updates and set(program.gradients) & set(program.updates) else learning_rate
    made = {**({} if rate is None else program.gradients), **program.updates}
    return tuple(
        Update(source=tensor, made=plan.results[value], learning_rate=None if source in program.updates else rate)
        for source, value in made.items()
        for tensor in plan.sources.get(source, ())
    )


def _is_due(num_steps: int, training: Training) -> bool:
    return num_steps == training.steps or bool(training.checkpoint_every and num_steps % training.checkpoint_every == 0)


def _next_due(step: int, training: Training) -> int:
    """The first number of steps after `step` at which a checkpoint is written: later steps wait for that."""
    if training.checkpoint is None:
        return training.steps
    return next(number for number in range(step + 1, training.steps + 1) if _is_due(number, training))


def losses_equal(losses: Sequence[float], other: Sequence[float], tolerance: float) -> bool:
    """Whether two runs had the same losses."""
    return len(losses) == len(other) and all(abs(a - b) <= tolerance for a, b in zip(losses, other, strict=True))


def run(
    plan: Plan,
    sources: Mapping[str, torch.Tensor],
    *,
    program: TensorProgram | None = None,
    allow_unverified: bool = False,
    overlap: bool = False,
    options: RankOptions | None = None,
) -> RunResult:
    """Runs a plan once, on new ranks, and returns the whole results.

    Args:
        plan: What to run.
        sources: For each source of the program, the whole tensor.
        program: What the plan is proved against first.
        allow_unverified: Run it without a proof.
        overlap: Whether communication runs during computation.
        options: How ranks run; as many as the plan needs, by default.

    Raises:
        PlanError: The plan is not proved, or a source does not fit.
        PlanRunError: A rank raised, died or did not go on.
    """
    check_proved(plan, program, allow_unverified=allow_unverified)
    with Ranks(options or RankOptions(num_ranks=plan.num_ranks)) as ranks:
        return ranks.run(plan, sources, overlap=overlap)


def train(
    plan: Plan,
    program: TensorProgram,
    sources: Mapping[str, torch.Tensor],
    make_batch: Callable[[int], Mapping[str, torch.Tensor]],
    training: Training,
    *,
    allow_unverified: bool = False,
    options: RankOptions | None = None,
) -> Trained:
    """Trains on new ranks: `train_on` says what the arguments are.

    Raises:
        PlanError: The plan is not proved, or is for another program.
        CheckpointError: The checkpoint to go on from is not whole, or not of this model.
        PlanRunError: A rank raised, died or did not go on.
    """
    check_proved(plan, program, allow_unverified=allow_unverified)
    with Ranks(options or RankOptions(num_ranks=plan.num_ranks)) as ranks:
        return train_on(ranks, plan, program, sources, make_batch, training)


def check_proved(plan: Plan, program: TensorProgram | None, *, allow_unverified: bool) -> None:
    """Refuses a plan that is not proved to compute what the program computes.

    Raises:
        PlanError: It is not.
    """
    if allow_unverified:
        return
    if program is None:
        raise PlanError("the plan cannot be proved without its program: give it, or allow unverified plans")
    report = verify(program, plan)
    if not report.is_proved:
        raise PlanError(f"the plan by {plan.provenance.planner or 'hand'} is not proved, so it does not run: {report}")
