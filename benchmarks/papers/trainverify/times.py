"""How long planning and proving take: over what grows, over what should not matter, and for the published models."""

import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from benchmarks.papers.bands import FRACTIONS
from benchmarks.papers.measured import Model as Built
from benchmarks.papers.measured import program_of
from benchmarks.papers.rows import not_here_row, number_row, points_of, sign_row
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Row
from benchmarks.papers.trainverify.figures import CONSTANT, CONSTANT_S, GROWTH, Model
from dyorc.errors import PlanError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.models import llama
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, repeat_layers
from dyorc.planner.verify import verify

_SMALL = {"hidden": 1024, "heads": 8, "kv_heads": 8, "inner": 2816, "vocabulary": 8192, "sequence": 128}
_WAYS = {"dp": 2, "tp": 2, "pp": 2, "microbatches": 2}
_BATCH = 1024
"""So that one captured program can be split in all ways."""
_LAYERS = 8


def _built(**sizes: int) -> Built:
    with torch.device("meta"):
        return llama(layers=2, **sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """What one plan took, in seconds of one core."""

    plan_s: float
    verify_s: float
    num_steps: int
    num_distinct: int
    peak_bytes: int


def _measured(program: TensorProgram, ways: Mapping[str, int], *, repeats: int = 1) -> _Measured:
    """Plans and proves; of several proofs the shortest counts."""
    num_ranks = ways["dp"] * ways["tp"] * ways["pp"]
    start_s = time.process_time()
    plan = PLANNERS["megatron"](program, even_cluster(num_ranks), **ways)
    plan_s, took_s, num_distinct = time.process_time() - start_s, list[float](), 0
    for _ in range(repeats):
        start_s = time.process_time()
        report = verify(program, plan)
        took_s.append(time.process_time() - start_s)
        if not report.is_proved:
            raise PlanError(f"a correct plan is not proved. {report}")
        num_distinct = report.runs[-1].num_distinct
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return _Measured(
        plan_s=plan_s, verify_s=min(took_s), num_steps=len(plan.steps), num_distinct=num_distinct, peak_bytes=peak_bytes
    )


def model_rows(model: Model) -> Iterator[Row]:
    """Captures, plans and proves one of the published models."""
    if not model.sizes:
        yield not_here_row("times", model.name, f"{model.total_s:,.0f} s", "DeepSeek is not among the models")
        return
    start_s = time.process_time()
    program = repeat_layers(program_of(_built, **model.sizes, batch=model.ways["dp"] * model.ways["microbatches"]), model.layers)
    capture_s = time.process_time() - start_s
    times = _measured(program, model.ways)
    total_s = capture_s + times.plan_s + times.verify_s
    note = (
        f"capture {capture_s:.1f} s, plan {times.plan_s:.1f} s, proof {times.verify_s:.1f} s; {model.layers} layers, "
        f"{times.num_steps:,} steps, {times.num_distinct} of them distinct; at most {times.peak_bytes / 1e9:.1f} GB of memory"
    )
    is_so = total_s <= model.total_s
    yield sign_row("times", model.name, f"{model.total_s:,.0f} s", f"{total_s:,.1f} s", is_so=is_so, note=note)


def growth(what: str, quick: bool, progress: Progress) -> Iterator[Row]:
    """Time over what grows."""
    published = GROWTH[what]
    numbers = sorted(published)
    points = points_of(f"seconds by {what}", numbers)
    for number in [numbers[0], numbers[-1]] if quick else numbers:
        progress(f"{what} {number}")
        ours_s = _at(what, number, repeats=1 if quick else 3).verify_s
        yield sign_row(
            f"time over {what}",
            str(number),
            f"{published[number]:.0f} s",
            f"{ours_s:.2f} s",
            is_so=ours_s <= published[number],
            point=points[number],
        )


def constancy(what: str, quick: bool) -> Iterator[Row]:
    """Time over what should not matter."""
    points = CONSTANT[what]
    took_s = [_at(what, point, repeats=1 if quick else 3).verify_s for point in points]
    name = f"time times, {what} from {points[0]} to {points[1]}"
    yield number_row("growth", name, CONSTANT_S[1] / CONSTANT_S[0], max(took_s) / min(took_s), band=FRACTIONS)


def _at(what: str, point: int, *, repeats: int) -> _Measured:
    sizes, ways, layers = dict(_SMALL), dict(_WAYS), _LAYERS
    batch = point if what == "batch" else _BATCH
    if what in sizes:
        sizes[what] = point
        if what == "hidden":
            sizes["inner"] = point * 11 // 4
        if what == "heads":
            sizes["kv_heads"] = min(point, 8)
    elif what == "layers":
        layers = point
    elif what in ways:
        ways[what] = point
        layers = max(CONSTANT["pp"]) if what == "pp" else layers
    return _measured(repeat_layers(program_of(_built, **sizes, batch=batch), layers), ways, repeats=repeats)
