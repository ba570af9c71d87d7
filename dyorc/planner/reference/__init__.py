"""What a module computes on one device, by PyTorch itself: the reference for captured programs, and for runs of plans.

module_step.py      runs the module: its loss, gradients and buffers, or its answers
run_check.py        judges what ranks computed
torch_optimizers.py one or several steps of an optimizer, by torch.optim
float64.py          runs module and program in float64
samples.py          other weights and inputs, by seed
tolerance.py        when two results are equal
comparison.py       compares a captured program with its module
repeatability.py    finds modules that compute something else each time
first_difference.py names the first operation whose result differs
"""

from dyorc.planner.reference.comparison import compare_with_module
from dyorc.planner.reference.module_step import LOSS, Step, answers_of, label_results, training_step_of
from dyorc.planner.reference.run_check import compare_update, judge_run
from dyorc.planner.reference.samples import example_with_elements, with_elements
from dyorc.planner.reference.tolerance import TOLERANCES, Judgement, judge
from dyorc.planner.reference.torch_optimizers import LOSS_TOLERANCE, Optimizer, first_wrong_step, losses_of

__all__ = [
    "LOSS",
    "LOSS_TOLERANCE",
    "TOLERANCES",
    "Judgement",
    "Optimizer",
    "Step",
    "answers_of",
    "compare_update",
    "compare_with_module",
    "example_with_elements",
    "first_wrong_step",
    "judge",
    "judge_run",
    "label_results",
    "losses_of",
    "training_step_of",
    "with_elements",
]
