"""TAG's bars in HAP's figures 13 and 14, at the speeds that are fitted to HAP's other baselines."""

from collections.abc import Iterable, Iterator, Mapping

from benchmarks.papers.bands import SIMULATED
from benchmarks.papers.hap.bars import machines
from benchmarks.papers.hap.figures import FIGURE_13, FIGURE_13_GPUS, FIGURE_14, FIGURE_14_GPUS
from benchmarks.papers.measured import program_of
from benchmarks.papers.rows import points_of, ratio_row
from benchmarks.papers.table import Row
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.pricing import price_plan

_PLAYOUTS = 100
_FIGURE_13 = {"VGG19": (0.660, 1.131, 1.370, 1.592), "BERT-Base": (1.150, 1.322, 1.549, 1.913)}
_FIGURE_14 = {"VGG19": (0.969, 1.022, 1.108, 1.229), "BERT-Base": (1.166, 1.264, 1.500, 1.640)}
"""Seconds of TAG."""


def bars(num_models: int, num_cells: int) -> Mapping[str, Iterable[Row]]:
    """Returns TAG's seconds relative to those of data parallelism, each cell of the figures to be computed by itself.

    Args:
        num_models: How many models of each figure.
        num_cells: How many numbers of GPUs; of figure 14 none if it is one.
    """
    parts: dict[str, Iterable[Row]] = {}
    for name, seconds in list(_FIGURE_13.items())[:num_models]:
        for num_gpus, tag_s in list(zip(FIGURE_13_GPUS, seconds, strict=True))[:num_cells]:
            ratio = tag_s / FIGURE_13[name].baselines["dp_proportional"][FIGURE_13_GPUS.index(num_gpus)]
            parts[f"HAP's figure 13, {name} on {num_gpus} GPUs"] = _cell("13", name, ratio, num_gpus, "dp_proportional")
    for name, seconds in list(_FIGURE_14.items())[: num_models if num_cells > 1 else 0]:
        for num_gpus, tag_s in list(zip(FIGURE_14_GPUS, seconds, strict=True))[:num_cells]:
            ratio = tag_s / FIGURE_14[name].baselines["dp_even"][FIGURE_14_GPUS.index(num_gpus)]
            parts[f"HAP's figure 14, {name} on {num_gpus} GPUs"] = _cell("14", name, ratio, num_gpus, "dp_even")
    return parts


def _cell(figure: str, name: str, ratio: float, num_gpus: int, baseline: str) -> Iterator[Row]:
    program = program_of(FIGURE_13[name].model, num_devices=num_gpus)
    cluster = machines(name, num_gpus)
    if figure == "14":
        cluster = machines(name, 2 * num_gpus).restricted_to((2, 3, 4, 5))
    tag = PLANNERS["tag"](program, cluster, playouts=_PLAYOUTS)
    plans = (tag, PLANNERS[baseline](program, cluster))
    found_s, baseline_s = (price_plan(plan, program, cluster).simulation.total_s for plan in plans)
    what = f"{name}, {num_gpus} GPUs: seconds of TAG / {baseline}"
    all_gpus = FIGURE_13_GPUS if figure == "13" else FIGURE_14_GPUS
    yield ratio_row(
        f"HAP, figure {figure}",
        what,
        ratio,
        found_s / baseline_s,
        band=SIMULATED,
        note=f"{_PLAYOUTS} playouts, and SFB",
        point=points_of(f"{name}: seconds of TAG / {baseline} by GPUs", all_gpus)[num_gpus],
    )
