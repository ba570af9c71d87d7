"""What HAP's text and abstract say of figures 13 to 15, from the rows of these figures; and of its linear program."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from statistics import median

from benchmarks.papers.bands import AT_MOST, SIMULATED
from benchmarks.papers.rows import fact_row, not_here_row, ratio_row
from benchmarks.papers.table import Row
from dyorc.planner.cluster import published
from dyorc.planner.planners.hap.ratios import ShareTerms, best_ratios

_LARGEST: Mapping[str, Mapping[str, float]] = {
    "figure 13": {"VGG19": 3.41, "BERT-Base": 1.28},
    "figure 14": {"VGG19": 3.17, "ViT": 1.19, "BERT-Base": 1.22, "BERT-MoE": 1.13},
}
"""Up to how many times as fast as the best of all baselines; "2.41x" in the abstract is 241 % more, as the bars show."""
_DEEPSPEED_S = {"VGG19": "1.202 to 1.563", "ViT": "0.565 to 0.689", "BERT-Base": "0.972 to 1.363"}
_STAGES = 20


def claims(rows: Sequence[Row]) -> Iterator[Row]:
    """Yields what the text says of the figures' rows."""
    for figure, largest in _LARGEST.items():
        for model, theirs in largest.items():
            ends = "best baseline / HAP"
            ours = [
                float(r.ours) for r in rows if r.figure == figure and r.what.startswith(f"{model},") and r.what.endswith(ends)
            ]
            if ours:
                what = f"{model}: best baseline / HAP, the largest of all numbers of GPUs"
                note = "theirs over DeepSpeed and TAG, too; ours over data parallelism, or over parallel experts"
                yield ratio_row(f"text on {figure}", what, theirs, max(ours), band=SIMULATED, note=note)
    for model, seconds in _DEEPSPEED_S.items():
        what, note = f"{model}, 8 to 64 GPUs: seconds of DeepSpeed", "which of its settings is not published"
        yield not_here_row("figure 13", what, seconds, note)


def linear_program() -> Iterator[Row]:
    """Yields how long the linear program of the shares takes, on a drawn program of some stages."""
    cluster, drawn, times = published("hap-8-machines"), Random(0), list[float]()
    stages = Counter(tuple((drawn.random(), drawn.random()) for _ in cluster.devices) for _ in range(_STAGES))
    terms = ShareTerms(fixed_s=1.0, largest=1.0, stages=stages, memory=())
    for _ in range(5):
        begun_s = time.process_time()
        best_ratios(terms, cluster)
        times.append((time.process_time() - begun_s) * 1e3)
    yield fact_row(
        "section 5.1",
        "milliseconds of the linear program",
        "below 1",
        f"{median(times):.2g}",
        is_so=median(times) < 1.0,
        band=AT_MOST,
        note=f"{_STAGES} stages on 8 machines; theirs by CBC from Rust, ours by HiGHS from Python",
    )
