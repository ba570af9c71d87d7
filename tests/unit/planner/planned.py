"""What every planner's plans are held to: they compute what the program computes, whatever the shares."""

import torch

from dyorc.planner.plan import Plan
from dyorc.planner.plan.interpret import interpret
from dyorc.planner.plan.on_torch import TorchAlgebra
from dyorc.planner.verify import verify
from tests.unit.planner.examples import Example


def assert_equal_to_one_device(found: Example, plan: Plan) -> None:
    """Runs a plan for all ranks, compares all results with those of one device, and has the plan proved."""
    plan.check_program(found.program)
    report = verify(found.program, plan)
    assert report.is_proved, report.findings
    results = interpret(plan, found.sources, TorchAlgebra())
    assert results.keys() == found.results.keys()
    for value, tensor in found.results.items():
        torch.testing.assert_close(results[value], tensor, rtol=0, atol=1e-9, msg=f"{plan.provenance.planner}: {value}")
