"""How long planning and proving take: over what grows, over what should not matter, and for the published models."""

import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from dyorc.errors import PlanError
from dyorc.offline.cluster import even_cluster
from dyorc.offline.models import llama
from dyorc.offline.planners import PLANNERS
from dyorc.offline.program import TensorProgram, repeated
from dyorc.offline.reproduce.measured import Model as Built
from dyorc.offline.reproduce.measured import program_of
from dyorc.offline.reproduce.study import Progress
from dyorc.offline.reproduce.table import Relation, Row
from dyorc.offline.reproduce.trainverify.figures import CONSTANT, CONSTANT_S, GROWTH, Model
from dyorc.offline.verify import verify

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
        yield _row("times", model.name, f"{model.total_s:,.0f} s", "", Relation.NOT_HERE, "DeepSeek is not among the models")
        return
    start_s = time.process_time()
    program = repeated(program_of(_built, **model.sizes, batch=model.ways["dp"] * model.ways["microbatches"]), model.layers)
    capture_s = time.process_time() - start_s
    found = _measured(program, model.ways)
    total_s = capture_s + found.plan_s + found.verify_s
    note = (
        f"capture {capture_s:.1f} s, plan {found.plan_s:.1f} s, proof {found.verify_s:.1f} s; {model.layers} layers, "
        f"{found.num_steps:,} steps, {found.num_distinct} of them distinct; at most {found.peak_bytes / 1e9:.1f} GB of memory"
    )
    relation = Relation.SAME_SIGN if total_s <= model.total_s else Relation.DIFFERS
    yield _row("times", model.name, f"{model.total_s:,.0f} s", f"{total_s:,.1f} s", relation, note)


def growth(what: str, quick: bool, progress: Progress) -> Iterator[Row]:
    """Time over what grows."""
    published = GROWTH[what]
    points = sorted(published)
    points = [points[0], points[-1]] if quick else points
    found = dict[int, float]()
    for point in points:
        progress(f"{what} {point}")
        found[point] = _at(what, point, repeats=1 if quick else 3).verify_s
        relation = Relation.SAME_SIGN if found[point] <= published[point] else Relation.DIFFERS
        yield _row(f"time over {what}", str(point), f"{published[point]:.0f} s", f"{found[point]:.2f} s", relation)
    ends = points[0], points[-1]
    name = f"{what} from {ends[0]} to {ends[1]}"
    yield _factor(name, published[ends[1]] / published[ends[0]], found[ends[1]] / found[ends[0]])


def constancy(what: str, quick: bool) -> Iterator[Row]:
    """Time over what should not matter."""
    points = CONSTANT[what]
    took_s = [_at(what, point, repeats=1 if quick else 3).verify_s for point in points]
    yield _factor(f"{what} from {points[0]} to {points[1]}", CONSTANT_S[1] / CONSTANT_S[0], max(took_s) / min(took_s))


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
    return _measured(repeated(program_of(_built, **sizes, batch=batch), layers), ways, repeats=repeats)


def _factor(what: str, published: float, ours: float) -> Row:
    """Growing less is better; a third is what times of half a second vary by."""
    relation = Relation.DIFFERS if ours > published * 4 / 3 else Relation.SAME_SIGN
    if published * 3 / 4 <= ours <= published * 4 / 3:
        relation = Relation.EQUAL
    return _row("growth", f"time times, {what}", f"{published:.2f}", f"{ours:.2f}", relation)


def _row(figure: str, what: str, published: str, ours: str, relation: Relation, note: str = "") -> Row:
    return Row(figure=figure, what=what, published=published, ours=ours, relation=relation, note=note)
