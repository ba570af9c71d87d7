"""What a module computes on one device, by PyTorch itself: the ruler for captured programs, and for runs of plans.

module_step.py      runs the module: its loss, gradients and buffers, or its answers
run_check.py        judges what ranks computed
update_step.py      the step of the optimizer, by torch.optim
training_loop.py    several steps on one device
float64.py          has module and program compute in float64, whatever types they name
samples.py          other weights and inputs, by seed
samples_apart.py    whether answers depend on what else is in a batch
coarsest_types.py   what a result was rounded to on its way
tolerance.py        when two results are equal
comparison.py       compares a captured program with its module
repeatability.py    finds what is another program each time
feasibility.py      whether there is the memory for it
first_difference.py names the first operation whose result differs
"""

from dyorc.planner.reference.comparison import compare_with_module
from dyorc.planner.reference.module_step import LOSS, Step, answers_of, labelled, training_step_of
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
    "labelled",
    "losses_of",
    "training_step_of",
    "with_elements",
]
