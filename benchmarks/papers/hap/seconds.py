"""Figure 19: how long planning takes, in seconds of one processor here."""

import time
from collections.abc import Callable, Iterator
from math import log

from benchmarks.papers.bands import MODELLED, REPEATED
from benchmarks.papers.hap.figures import FIGURE_19
from benchmarks.papers.measured import program_of
from benchmarks.papers.models.published import hap_vit
from benchmarks.papers.rows import points_of, ratio_row, sign_row
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Row
from dyorc.planner.cluster import even_cluster, published
from dyorc.planner.planners import PLANNERS

_NOTE = "theirs in Rust, on the forward graph and another processor; ours in Python, on forward and backward"


def figure_19(progress: Progress, max_layers: int = 24) -> Iterator[Row]:
    """Yields the seconds of planning ViT by its layers, and by the number of devices."""
    cluster = published("hap-8-machines")
    ours: dict[int, float] = {}
    for layers, published_s in FIGURE_19.items():
        if layers > max_layers:
            return
        progress(f"figure 19, {layers} layers")
        program = program_of(hap_vit, layers=layers, num_devices=8)
        ours[layers] = _seconds(lambda program=program: PLANNERS["hap"](program, cluster))
        yield _row(layers, published_s, ours[layers])
    theirs = _exponent(FIGURE_19[8], FIGURE_19[24])
    what = "power of the layers with which planning grows from 8 to 24 of them; 1 is linear"
    yield ratio_row("figure 19", what, theirs, _exponent(ours[8], ours[24]), band=MODELLED)
    progress("figure 19, 4 and 32 devices")
    program = program_of(hap_vit, layers=2, num_devices=32)
    few, many = (_seconds(lambda n=n: PLANNERS["hap"](program, even_cluster(n))) for n in (4, 32))
    what = "seconds of planning for 32 devices / for 4"
    yield ratio_row("figure 19", what, 1.0, many / few, band=REPEATED, note="ViT of 2 layers; every rank is simulated here")


def _row(layers: int, published_s: float, ours_s: float) -> Row:
    is_faster = ours_s <= published_s
    speed = f"{published_s / ours_s:.1f} times as fast" if is_faster else f"{ours_s / published_s:.1f} times as slow"
    return sign_row(
        "figure 19",
        f"seconds of planning ViT of {layers} layers",
        f"{published_s:.2f}",
        f"{ours_s:.2f}",
        is_so=is_faster,
        note=f"{speed}; {_NOTE}",
        point=points_of("seconds of planning by layers", list(FIGURE_19))[layers],
    )


def _exponent(few_s: float, many_s: float) -> float:
    return log(many_s / few_s) / log(24 / 8)


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of this process's processor: what else the machine does is not counted."""
    started_s = time.process_time()
    work()
    return time.process_time() - started_s
