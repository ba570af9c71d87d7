"""Proves plans of models that answer, for the largest batch and for a single sample: in between, only extents differ."""

from dataclasses import replace

from dyorc.errors import PlanError
from dyorc.planner.plan import Plan, for_samples
from dyorc.planner.program import TensorProgram
from dyorc.planner.program.batch import with_samples
from dyorc.planner.verify.report import Report
from dyorc.planner.verify.verify import verify


def verify_inference(program: TensorProgram, plan: Plan) -> list[Report]:
    """Checks a plan of a model that answers, and returns a report for each size of batch that was looked at."""
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
