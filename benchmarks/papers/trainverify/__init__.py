"""TrainVerify (SOSP'25): times of its models, how time grows, its bugs, and correct plans.

figures.py     what is published
times.py     how long planning and proving take here
bugs.py     the bugs of its table, and more
correct.py     plans of all planners, none of which may be found wrong
"""

from collections.abc import Iterable

from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Line, Row
from benchmarks.papers.trainverify.bugs import faults
from benchmarks.papers.trainverify.correct import false_alarms
from benchmarks.papers.trainverify.figures import CONSTANT, GROWTH, MODELS
from benchmarks.papers.trainverify.times import constancy, growth, model_rows

_ABOUT = """Published times are of at least 32 cores with 1 TB of memory, from capture to verdict; ours are seconds of one
core. Models have no weights; two of their layers are captured and repeated. Each distinct step is proved once, on small
shapes and along one axis of its mesh at a time, so repeated layers, ranks and the sizes of tensors cost nothing. What grows
with the plan is the check of its structure, which reads each step once. In Llamas, tp splits the feed-forward part;
attention, whose heads share keys, is whole in each group. Growth is measured on small Llamas of 8 layers (16 for pp)."""


_QUICK = ("pp", "sequence")


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns the table of TrainVerify's figures, to be computed.

    Args:
        quick: Fewer points of each curve, measured once, the 8B model alone, faults without the finite field, plans of one model.
        progress: Called with the name of each step.
    """
    rows = false_alarms(quick, progress)
    full: dict[str, Iterable[Row | Line]] = {
        **{f"time over {what}": growth(what, quick, progress) for what in GROWTH},
        **{f"{what}, which should not matter": constancy(what, quick) for what in CONSTANT},
        **{model.name: model_rows(model) for model in MODELS},
        "bugs": faults(quick, progress),
        "correct plans": unjudged(rows, "four models and all clusters") if quick else rows,
    }
    slow = {f"{what}, which should not matter" for what in CONSTANT if what not in _QUICK}
    slow |= {model.name for model in MODELS if model.sizes and model is not MODELS[0]}
    parts = {name: part for name, part in full.items() if name not in slow} if quick else full
    left_out = (*(part for part in full if part in slow), *_SHORTENED) if quick else ()
    title = "TrainVerify (SOSP'25)"
    return Study(name="trainverify", title=title, about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


_SHORTENED = (
    "time over microbatches, tp, dp and layers between the ends, and its trends",
    "the finite field's finding of faults",
)
