"""HAP (EuroSys'24): figures 2, 4 and 13 to 19.

figures.py     what is published
crossovers.py     figures 2 and 4, from costs alone
bars.py     figures 13 to 16, in simulation
experts.py     figure 17, in simulation
accuracy.py     figure 18, on real ranks here
seconds.py     figure 19, here
claims.py     what the text says of figures 13 to 15, and the linear program
"""

from collections.abc import Iterable, Mapping

from benchmarks.papers.hap.accuracy import figure_18
from benchmarks.papers.hap.bars import figure_13, figure_14, figure_15, figure_16
from benchmarks.papers.hap.claims import claims, linear_program
from benchmarks.papers.hap.crossovers import figures_2_and_4
from benchmarks.papers.hap.experts import figure_17
from benchmarks.papers.hap.figures import FIGURE_13, FIGURE_13_GPUS, FIGURE_14, FIGURE_14_GPUS, FIGURE_15, FIGURE_16
from benchmarks.papers.hap.seconds import figure_19
from benchmarks.papers.study import Progress, Study, kept
from benchmarks.papers.table import Row

_ABOUT = """Figures 13 to 17 are simulated, with the authors' calibration. They measured every model on every device, but
published one speed for each device. So one number for each model, how much slower it computes than calibrated, is fitted to
its baselines' bars on 8 GPUs; all other bars are predicted. Everything communicates beside computation, HAP's programs, too:
HAP's bars for ViT are lower than the time that reducing ViT's gradients alone would take. Figures 18 and 19 are measured
here."""


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns the table of HAP's figures, to be computed.

    Args:
        quick: Figures 2 and 4, VGG19 on 8 and 16 GPUs, and up to 4 layers of figure 19.
        progress: Called with the name of each step.
    """
    full, few = _all(progress), _few(progress)
    left_out = (*(part for part in full if part not in few), _SHORTENED) if quick else ()
    parts = few if quick else full
    return Study(name="hap", title="HAP (EuroSys'24)", about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


_SHORTENED = "figure 19 for more than 4 layers, and for 4 and 32 devices"


def _few(progress: Progress) -> Mapping[str, Iterable[Row]]:
    return {
        "figures 2 and 4": figures_2_and_4(),
        **{f"figure 13, VGG19 on {gpus} GPUs": figure_13("VGG19", gpus) for gpus in FIGURE_13_GPUS[:2]},
        "figure 19": figure_19(progress, max_layers=4),
        "linear program": linear_program(),
    }


def _all(progress: Progress) -> Mapping[str, Iterable[Row]]:
    rows: list[Row] = []
    return {
        "figures 2 and 4": figures_2_and_4(),
        **{
            f"figure 13, {name} on {gpus} GPUs": kept(figure_13(name, gpus), rows)
            for name in FIGURE_13
            for gpus in FIGURE_13_GPUS
        },
        **{
            f"figure 14, {name} on {gpus} GPUs": kept(figure_14(name, gpus), rows)
            for name in FIGURE_14
            for gpus in FIGURE_14_GPUS
        },
        **{f"figure 15, {name}": kept(figure_15(name), rows) for name in FIGURE_15},
        **{f"figure 16, {name}": figure_16(name) for name in FIGURE_16},
        "text on figures 13 to 15": claims(rows),
        "figure 17": figure_17(progress),
        "figure 18": figure_18(progress),
        "figure 19": figure_19(progress),
        "linear program": linear_program(),
    }
