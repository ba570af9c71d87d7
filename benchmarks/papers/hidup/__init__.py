"""HiDup (SoCC'22): figures 6 to 14 and tables 2 to 5, and what it adds to HAP.

published.py     what is published
bars.py     figures 6, 7 and 8, and table 4, in simulation
planning.py     figures 11, 12 and 14, and table 5, here
overlap.py     two microbatches on real ranks, measured here
combination.py     HAP's shares with HiDup's overlap, which nobody has published
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.papers.bands import SIMULATED
from benchmarks.papers.hidup.bars import figure_6, figure_7, figure_8, figure_8_gbits, table_4
from benchmarks.papers.hidup.combination import MODELS, combination
from benchmarks.papers.hidup.overlap import on_real_ranks
from benchmarks.papers.hidup.planning import figure_14, figures_11_and_12, table_5
from benchmarks.papers.hidup.published import (
    FIGURE_6,
    FIGURE_6_GPUS,
    FIGURE_7,
    FIGURE_7_GPUS,
    FIGURE_8,
    LARGEST,
    TABLE_4,
)
from benchmarks.papers.rows import not_here_row, ratio_row
from benchmarks.papers.study import Progress, Study, kept
from benchmarks.papers.table import Row

_ABOUT = """Figures 6 to 8 and table 4 are simulated, with the authors' calibration: one speed of a V100 for all models, and
rates of whole collectives. A quarter of each model is simulated, two of its eight layers and a quarter of its vocabulary, and
counted four times. DeepSpeed and FastMoE are simulated as parallel experts that wait for all communication, as table 4 says
they do; Horovod and DDP as data parallelism that communicates beside computation. Figures 11, 12 and 14 and table 5 need the
planner alone. *combination* is HAP's uneven shares with HiDup's two microbatches, in simulation, against each planner by
itself."""
_NOT_HERE = (
    (
        "figure 7",
        "DeepSpeed and FastMoE on 8 GPUs of one machine, BERT-SGMoE / HiDup",
        "1.30, 1.40",
        "FastMoE's and DeepSpeed's kernels; as plans they are parallel experts, as in figure 6",
    ),
    ("table 2", "how much slower kernels compute beside communication", "1.9 to 14 %", "needs GPUs"),
    *(
        (
            "table 3",
            f"GB of memory of {model}: HiDup, DDP, DeepSpeed",
            gigabytes,
            "what PyTorch's allocator takes is not simulated",
        )
        for model, gigabytes in {
            "BERT-SGMoE": "6.77, 9.87, 8.09",
            "BERT-Switch": "6.34, 9.44, 7.80",
            "ViT-SGMoE": "2.79, 4.92, 2.53",
            "ViT-Switch": "2.60, 4.68, 2.52",
        }.items()
    ),
    (
        "figure 9",
        "HiDup / DeepSpeed at batches of 4, 8, 16, 32 and 64 for each GPU",
        "1.24, 1.07, 0.93, 0.79, 0.65",
        "half a small batch uses a GPU badly, which is not in our costs",
    ),
    ("figure 9", "speed of a product at batches of 4, 16 and 64, of its best", "0.32, 0.78, 1.0", "needs the V100's kernels"),
    (
        "traces",
        "ms of a step on 4 V100s, and on two machines with 4: HiDup / the best other",
        "387 / 401, 459 / 663",
        "the repository with the traces has no licence: nothing of it is used here",
    ),
    ("figure 13", "largest error of estimates by flops", "17 %", "needs the V100's kernels"),
)


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns the table of HiDup's figures, to be computed.

    Args:
        quick: ViT-SGMoE on 8 GPUs, up to 4 layers of figure 14, and the combination of one model.
        progress: Called with the name of each step.
    """
    full, few = _all(progress), _few(progress)
    parts = {**(few if quick else full), "not here": _not_here()}
    left_out = (*(part for part in full if part not in few), *_SHORTENED) if quick else ()
    return Study(name="hidup", title="HiDup (SoCC'22)", about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


_SHORTENED = ("figure 14 for 8 layers, and its growth", "combination, GPT at two of three pairs of speeds")


def _few(progress: Progress) -> Mapping[str, Iterable[Row]]:
    return {
        "figure 6, ViT-SGMoE on 8 GPUs": figure_6("ViT-SGMoE", 8),
        "figure 14": figure_14(progress, max_layers=4),
        "combination, GPT": combination("GPT", progress, speeds=((2.0, 1.0),)),
    }


def _all(progress: Progress) -> Mapping[str, Iterable[Row]]:
    rows: list[Row] = []
    return {
        **{f"figure 6, {name} on {gpus} GPUs": kept(figure_6(name, gpus), rows) for name in FIGURE_6 for gpus in FIGURE_6_GPUS},
        **{f"figure 7, {name} on {gpus} GPUs": figure_7(name, gpus) for name in FIGURE_7 for gpus in FIGURE_7_GPUS},
        **{
            f"figure 8, {name} at {gbits} Gb/s": kept(figure_8(name, gbits), rows)
            for name in FIGURE_8
            for gbits in figure_8_gbits(name)
        },
        "text on figures 6 and 8": _claims(rows),
        "figures 11 and 12": figures_11_and_12(),
        "figure 14": figure_14(progress, max_layers=8),
        **{f"table 4, {name}": table_4(name) for name in TABLE_4},
        "table 5": table_5(),
        "real ranks": on_real_ranks(progress),
        **{f"combination, {name}": combination(name, progress) for name in MODELS},
    }


def _claims(rows: Sequence[Row]) -> Iterator[Row]:
    """Yields what the text says of the figures' rows."""
    for figure, largest in LARGEST.items():
        for kind, theirs in largest.items():
            ends = "best other / HiDup"
            ours = [float(r.ours) for r in rows if r.figure == figure and r.what.startswith(kind) and r.what.endswith(ends)]
            if ours:
                what = f"{kind or 'all'} models: best other / HiDup, the largest"
                yield ratio_row(f"text on {figure}", what, theirs, max(ours), band=SIMULATED)


def _not_here() -> Iterator[Row]:
    for figure, what, published, why in _NOT_HERE:
        yield not_here_row(figure, what, published, why)
