"""How soon TAG's search is better than data parallelism, and how much in the end; with and without the network."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median

from benchmarks.papers.measured import Builder, program_of
from benchmarks.papers.models.published import tag_bert, tag_transformer, tag_vgg19
from benchmarks.papers.rows import not_here_row, own_row, ratio_row, sign_row
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Row
from benchmarks.papers.tag.searching import Searching, at_rooflines, random_clusters
from dyorc.planner.cluster import published
from dyorc.planner.planners.tag.policy_network import PolicyNetwork

MODELS: Mapping[str, Builder] = {"VGG19": tag_vgg19, "Transformer": tag_transformer, "BERT-small": tag_bert}
BATCH_EACH = 3
"""Samples for each device. The paper's batches are not known, but that they are no smaller than 32."""
_MAX_PLAYOUTS = 200


def until_better(network: PolicyNetwork | None, models: Sequence[str], num_clusters: int, progress: Progress) -> Iterator[Row]:
    """Yields how many playouts it takes on random clusters, for all models together and for each."""
    counts: dict[str, list[tuple[int | None, int | None]]] = {name: [] for name in models}
    for number, cluster in enumerate(random_clusters(num_clusters)):
        name = models[number % len(models)]
        progress(f"playouts until better than data parallelism: cluster {number + 1} of {num_clusters}, {name}")
        searching = Searching(program_of(MODELS[name], batch=BATCH_EACH * cluster.num_ranks), cluster)
        guided, free = (searching.until_better(each, _MAX_PLAYOUTS, seed=number) for each in (network, None))
        counts[name].append((guided, free))
    if len(models) > 1:
        yield _until_better_row("all models in turn", [pair for each in counts.values() for pair in each], network)
    for name, each in counts.items():
        yield _until_better_row(name, each, network)


def _until_better_row(name: str, counts: Sequence[tuple[int | None, int | None]], network: PolicyNetwork | None) -> Row:
    guided, free = ([_MAX_PLAYOUTS if pair[side] is None else pair[side] or 0 for pair in counts] for side in (0, 1))
    fewer, more = (sum(sign * (a - b) < 0 for a, b in zip(guided, free, strict=True)) for sign in (1, -1))
    never = [sum(pair[side] is None for pair in counts) for side in (0, 1)]
    note = (
        f"medians {median(guided):g} / {median(free):g}; fewer on {fewer}, more on {more}; "
        f"none within {_MAX_PLAYOUTS} on {never[0]} / {never[1]}; {BATCH_EACH} samples each; the paper's figures are not known"
    )
    what = (
        f"{name}, {len(counts)} random topologies of 8 GPUs: mean playouts until better than data parallelism, "
        "with / without the network"
    )
    if not network:
        return not_here_row("generalisation", what, "fewer with it", "there are no weights: run make train-tag")
    ours = f"{mean(guided):.1f} / {mean(free):.1f}"
    return sign_row("generalisation", what, "fewer with it", ours, is_so=mean(guided) < mean(free), note=note)


def best_after(network: PolicyNetwork | None, name: str, numbers: Sequence[int], gains: list[float]) -> Iterator[Row]:
    """Yields the gain after so many playouts on TAG's testbed, and adds it to `gains`."""
    cluster = at_rooflines(published("tag-testbed"))
    searching = Searching(program_of(MODELS[name], batch=BATCH_EACH * cluster.num_ranks), cluster)
    texts: list[str] = []
    for each in (network, None):
        best = searching.best_after(each, numbers)
        found = [searching.data_parallel_s / searching.simulated_s(best[number]) for number in numbers]
        texts.append(" / ".join(f"{gain:.2f}" for gain in found))
        gains += found
    yield own_row(
        "search",
        f"{name} on the testbed of 16 GPUs: data parallelism / best of {' / '.join(map(str, numbers))} playouts",
        texts[0],
        f"without the network {texts[1]}; {BATCH_EACH} samples each",
    )


def largest(gains: Sequence[float]) -> Iterator[Row]:
    """Yields the largest gain of all models that were searched for."""
    note = "ours over even data parallelism alone; the paper's best of six models and several schemes; batches are not known"
    yield ratio_row("abstract", "largest speed-up over existing schemes", 4.56, max(gains), note=note)
