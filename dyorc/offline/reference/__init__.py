"""What a module computes on one device, by PyTorch itself: the ruler for captured programs, and for runs of plans.

    module_step.py      runs the module: its loss, gradients and buffers, or its answers
    update_step.py      the step of the optimizer, by torch.optim
    float64.py          has module and program compute in float64, whatever types they name
    samples.py          other weights and inputs, by seed
    tolerance.py        when two results are equal
    comparison.py       runs a captured program beside its module
    first_difference.py names the first operation whose result differs
"""

from dyorc.offline.reference.comparison import compare_with_module
from dyorc.offline.reference.module_step import Step, answers_of, training_step_of
from dyorc.offline.reference.tolerance import TOLERANCES, Judgement, judge

__all__ = ["TOLERANCES", "Judgement", "Step", "answers_of", "compare_with_module", "judge", "training_step_of"]
