"""Correct plans, none of which may be found wrong: by all planners, on several models and clusters."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from typing import Any

import torch

from benchmarks.papers.bands import EXACT
from benchmarks.papers.measured import Model
from benchmarks.papers.rows import fact_row
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Kind, Row
from dyorc.errors import PlanError
from dyorc.planner import models
from dyorc.planner.cluster import uneven_cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, capture
from dyorc.planner.verify import verify

_MODELS: Mapping[str, Callable[[], Model]] = {
    "GPT": lambda: models.gpt(layers=1),
    "Llama": lambda: models.llama(layers=1),
    "BERT-MoE": lambda: models.bert_moe(hidden=16),
    "ViT": lambda: models.vit(layers=1),
}
_SHARES = ((1.0, 1.0), (3.0, 1.0), (1.0, 1.0, 1.0, 1.0), (3.0, 1.0, 3.0, 1.0), (3.0, 1.0, 0.0, 4.0))
"""Of each rank, in proportion; a rank whose share is nothing is as slow as if it were not there."""
_NO_SPEED = 1e-6
_SEARCHES: Mapping[str, Mapping[str, Any]] = {
    "hap": {"max_states": 8, "max_rounds": 2},
    "hidup": {"max_states": 4},
    "duplex_hap": {"max_states": 4, "max_rounds": 1},
    "tag": {"max_groups": 10, "playouts": 20},
    "exhaustive": {},
}
"""Planners that search: kept short, and on the first model alone."""


def false_alarms(quick: bool, progress: Progress) -> Iterator[Row]:
    """How many correct plans are not proved."""
    num_plans, num_refused, wrong, planners = 0, 0, list[str](), set[str]()
    for name in list(_MODELS)[: 1 if quick else None]:
        torch.manual_seed(0)
        program = capture(*_MODELS[name]())
        for planner, shares in _cases(is_first=name == next(iter(_MODELS)), quick=quick):
            progress(f"correct plans: {name}, {planner}, {shares}")
            plan = _planned(program, planner, shares)
            if plan is None:
                num_refused += 1
                continue
            num_plans += 1
            planners.add(planner)
            if not verify(program, plan).is_proved:
                wrong.append(f"{name}, {planner}, {shares}")
    num_models, num_clusters = 1 if quick else len(_MODELS), len(_clusters(quick))
    note = (
        f"{len(planners)} planners, {num_models} models, {num_clusters} clusters of 2 and 4 ranks, {'' if quick else 'even, '}"
        f"uneven, and with a rank that gets nothing; {num_refused} more are refused by planners that need more layers or ranks "
        "than there are"
    )
    ours = f"{len(wrong)} of {num_plans} plans"
    yield fact_row("correct plans", "false alarms", "0", ours, is_so=not wrong, band=EXACT, kind=Kind.OWN, note=note)


def _cases(*, is_first: bool, quick: bool) -> Iterator[tuple[str, tuple[float, ...]]]:
    for planner in PLANNERS:
        if planner not in _SEARCHES or (is_first and not quick):
            for shares in _clusters(quick):
                yield planner, shares


def _clusters(quick: bool) -> Sequence[tuple[float, ...]]:
    """All, or one of two ranks and one of four, both uneven."""
    return (_SHARES[1], _SHARES[-1]) if quick else _SHARES


def _planned(program: TensorProgram, planner: str, shares: tuple[float, ...]) -> Plan | None:
    cluster = uneven_cluster([share or _NO_SPEED for share in shares], flops_per_s=1e9, bytes_per_s=1e9, latency_s=1e-7)
    options = dict(_SEARCHES.get(planner, {}))
    if "ratios" in signature(PLANNERS[planner]).parameters:
        options["ratios"] = shares
    try:
        return PLANNERS[planner](program, cluster, **options)
    except PlanError:
        return None
