"""What a module computes on one device, by PyTorch itself: the ruler for captured programs, and for runs of plans.

module_step.py      runs the module: its loss, gradients and buffers, or its answers
run_check.py        judges what ranks computed
update_step.py      the step of the optimizer, by torch.optim
float64.py          has module and program compute in float64, whatever types they name
samples.py          other weights and inputs, by seed
tolerance.py        when two results are equal
comparison.py       runs a captured program beside its module
first_difference.py names the first operation whose result differs
"""

from dyorc.offline.reference.comparison import compare_with_module
from dyorc.offline.reference.module_step import LOSS, Step, answers_of, labelled, training_step_of
from dyorc.offline.reference.run_check import Optimizer, compare_update, judge_run
from dyorc.offline.reference.tolerance import TOLERANCES, Judgement, judge

__all__ = [
    "LOSS",
    "TOLERANCES",
    "Judgement",
    "Optimizer",
    "Step",
    "answers_of",
    "compare_update",
    "compare_with_module",
    "judge",
    "judge_run",
    "labelled",
    "training_step_of",
]
