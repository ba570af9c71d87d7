"""Verifies plans: a plan that is proved computes, on any inputs, what its program computes on one device.

Plans for inference are proved for the largest batch and for a single sample: in between, only extents differ.
"""

import time
from collections.abc import Collection
from dataclasses import replace

from dyorc.errors import PlanError
from dyorc.planner.plan import Plan, for_samples
from dyorc.planner.program import TensorProgram
from dyorc.planner.program.batch import with_samples
from dyorc.planner.verify.cases import CasesOf
from dyorc.planner.verify.plan_index import PlanIndex
from dyorc.planner.verify.proof import ProofTier
from dyorc.planner.verify.randomized import FieldTier, can_run_whole
from dyorc.planner.verify.report import Finding, Report, Tier, TierRun
from dyorc.planner.verify.structure import STOPPING, check_structure

ALL_TIERS = (Tier.STRUCTURE, Tier.FIELD, Tier.PROOF)


def verify(program: TensorProgram, plan: Plan, *, tiers: Collection[Tier] = ALL_TIERS) -> Report:
    """Checks that a plan computes what its program computes.

    Args:
        program: What the plan distributes.
        plan: What to check.
        tiers: Which checks to run; a proof needs structure and proof, and the finite field is an independent test of both.

    Returns:
        What was found; `report.is_proved` says whether the plan is right.
    """
    findings: list[Finding] = []
    runs: list[TierRun] = []
    start = time.perf_counter()
    reading = PlanIndex(program, plan)
    if Tier.STRUCTURE in tiers:
        findings += check_structure(reading)
        runs.append(_run(Tier.STRUCTURE, start, plan, len(plan.steps)))
    if any(finding.kind in STOPPING for finding in findings):
        return Report(program=program.name, findings=tuple(findings), runs=tuple(runs))
    cases = CasesOf(reading)
    if Tier.FIELD in tiers:
        start, tier = time.perf_counter(), FieldTier()
        findings += tier.check_steps(cases, plan)
        reason = can_run_whole(program, plan)
        findings += [] if reason else tier.check_whole(program, plan)
        runs.append(_run(Tier.FIELD, start, plan, tier.num_distinct, notes=(reason,) if reason else ()))
    if Tier.PROOF in tiers:
        start, proof = time.perf_counter(), ProofTier()
        findings += proof.check_steps(cases, plan)
        runs.append(_run(Tier.PROOF, start, plan, proof.num_distinct, proof.num_solver))
    return Report(program=program.name, findings=tuple(findings), runs=tuple(runs))


def _run(tier: Tier, start: float, plan: Plan, num_distinct: int, num_solver: int = 0, notes: tuple[str, ...] = ()) -> TierRun:
    return TierRun(
        tier=tier,
        seconds=time.perf_counter() - start,
        num_steps=len(plan.steps),
        num_distinct=num_distinct,
        num_solver=num_solver,
        notes=notes,
    )


def verify_inference(program: TensorProgram, plan: Plan) -> list[Report]:
    """Checks a plan for inference, and returns a report for each size of batch that was checked."""
    reports = [verify(program, plan)]
    if plan.inference is not None and plan.inference.max_samples > 1 and not reports[0].findings:
        single = with_samples(program, 1)
        reports.append(verify(single, replace(for_samples(plan, 1), program=single.digest)))
    return reports


def mark_proved(program: TensorProgram, plan: Plan) -> Plan:
    """Returns the plan, marked as proved, so that it may be served.

    Raises:
        PlanError: It does not compute what the program does, or is of a training step.
    """
    if plan.inference is None:
        raise PlanError("the plan is of a training step: only plans of models that answer are served")
    for report in verify_inference(program, plan):
        if not report.is_proved:
            raise PlanError(f"the plan does not compute what {program.name} computes. {report}")
    return replace(plan, inference=replace(plan.inference, is_proved=True))
