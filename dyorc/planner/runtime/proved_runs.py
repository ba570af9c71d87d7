"""Runs or trains by a plan in one call: proves the plan first, starts the ranks, and ends them."""

from collections.abc import Callable, Mapping

import torch

from dyorc.errors import PlanError
from dyorc.planner.plan import Plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.runtime.ranks import RankOptions, Ranks, RunResult
from dyorc.planner.runtime.training import Trained, Training, train_on
from dyorc.planner.verify import verify


def run(
    plan: Plan,
    sources: Mapping[str, torch.Tensor],
    *,
    program: TensorProgram | None = None,
    allow_unverified: bool = False,
    overlap: bool = False,
    options: RankOptions | None = None,
) -> RunResult:
    """Runs a plan once, on ranks of its own, and returns the whole results.

    Args:
        plan: What to run.
        sources: For each source of the program, the whole tensor.
        program: What the plan is proved against first.
        allow_unverified: Run it without a proof.
        overlap: Whether communication runs beside computation.
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
    """Trains on ranks of its own: `train_on` says what the arguments are.

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
