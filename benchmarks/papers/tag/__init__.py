"""TAG (TPDS'23): what its abstract claims and its code measures, in simulation.

The tables of the paper are not known here, only its abstract, what its public code does, and TAG's bars in HAP's figures 13 and
14. So most rows state what is measured and on which side the paper says the result lies. Devices, links and NCCL's costs are
those of the code; how fast devices compute follows from data sheets, but in HAP's figures, where it is fitted to other bars.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benchmarks.papers.rows import not_here_row, number_row, points_of
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Row
from benchmarks.papers.tag.bars import bars
from benchmarks.papers.tag.searching import MODELS, best_after, largest, until_better
from benchmarks.papers.tag.sfb import break_even, duplication
from dyorc.planner.cluster.published import tag_cluster
from dyorc.planner.plan import Algorithm, CollectiveKind
from dyorc.planner.planners.tag.policy_network import PolicyNetwork, load_network

_ABOUT = """All of it is simulated. The paper's tables are not known here. The rows are what its abstract claims, what its
public code measures, and TAG's bars in HAP's figures. Devices, links and NCCL's costs are those of the code; devices reach
half of their data sheets' arithmetic and all of their memory's speed, except in HAP's figures. The network is the one in the
package, trained here on other models and other clusters."""
_NCCL_BETWEEN_US = {1024: 789.0, 16_384: 4788.0, 1_048_576: 291_205.0}
"""NCCL's all-reduce between machines, in microseconds by KB; the fit's published points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of the table is computed.

    Attributes:
        clusters: How many random clusters.
        models: Which models are searched for on them, in turn, and on the testbed.
        playouts: After how many the best is looked at on the testbed.
        duplicated: Which models sums of gradients are replaced in.
        duplicated_playouts: How many there.
        bars: How many of HAP's figures' models.
        cells: How many of their cells.
        break_even_ratio: How exactly the break-even is searched.
    """

    clusters: int = 100
    models: tuple[str, ...] = tuple(MODELS)
    playouts: tuple[int, ...] = (50, 800, 2000)
    duplicated: tuple[str, ...] = tuple(MODELS)
    duplicated_playouts: int = 800
    bars: int = 2
    cells: int = 4
    break_even_ratio: float = 0.005


FULL = Size()
QUICK = Size(
    clusters=10,
    models=("Transformer",),
    playouts=(50,),
    duplicated=("VGG19",),
    duplicated_playouts=50,
    bars=1,
    cells=1,
    break_even_ratio=0.05,
)


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns the table of TAG, to be computed.

    Args:
        quick: 10 clusters instead of 100, and one model for each figure.
        progress: Called with the name of each step.
    """
    network = load_network()
    full, parts = _parts(FULL, network, progress), _parts(QUICK if quick else FULL, network, progress)
    if quick:
        parts |= {name: unjudged(parts[name], size) for name, size in _FULL_SIZES.items()}
    left_out = tuple(part for part in full if part not in parts)
    return Study(name="tag", title="TAG (TPDS'23)", about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


_FULL_SIZES = {
    "generalisation": "100 clusters and three models",
    "abstract": "three models and up to 2,000 playouts",
    "SFB, VGG19": "800 playouts",
}
"""Of the parts that a quick run computes at another size."""


def _parts(size: Size, network: PolicyNetwork | None, progress: Progress) -> dict[str, Iterable[Row | Line]]:
    gains: list[float] = []
    return {
        "NCCL": _nccl(),
        "break-even of SFB": break_even(size.break_even_ratio),
        "generalisation": until_better(network, size.models, size.clusters, progress),
        **{f"search, {name}": best_after(network, name, size.playouts, gains) for name in size.models},
        "abstract": largest(gains),
        **{f"SFB, {name}": duplication(network, name, size.duplicated_playouts) for name in size.duplicated},
        **bars(size.bars, size.cells),
        "not here": _unknown(),
    }


def _nccl() -> Iterator[Row]:
    cluster = tag_cluster([("V100", 1, 8e9), ("V100", 1, 8e9)])
    points = points_of("microseconds of an all-reduce by KB", list(_NCCL_BETWEEN_US))
    for kilobytes, published_us in _NCCL_BETWEEN_US.items():
        ours_s = cluster.collective_s(CollectiveKind.ALL_REDUCE, Algorithm.PADDED, (0, 1), [1024 * kilobytes] * 2)
        what = f"microseconds of an all-reduce of {kilobytes:,} KB between machines"
        note = "the code's two lines beside the points that they were fitted to"
        yield number_row("NCCL", what, published_us, ours_s * 1e6, kind=Kind.FITTED, note=note, point=points[kilobytes])


def _unknown() -> Iterator[Row]:
    for what, why in {
        "NCCL's all-reduce within a machine: 518 microseconds for 1 MB, 221,519 for 1 GB": "the machine's links are not known",
        "InceptionV3 and ResNet-101": "there are no such models here",
        "BERT-large, 24 layers": "not run: there is no published figure to compare with",
        "seconds of each model and scheme on the testbed": "the paper's tables are not known here",
        "error of the simulator": "no GPUs, and the figure is not known here",
        "loss curves with and without fine-tuning of the network": "the figure is not known here",
        "seconds of a search": "the figure is not known here",
    }.items():
        yield not_here_row("others", what, "not known", why)
