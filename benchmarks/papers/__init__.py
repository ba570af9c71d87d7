"""Tables that compare what papers published with what comes out here."""

from collections.abc import Mapping

REPRODUCIBLE: Mapping[str, str] = {
    "hap": "benchmarks.papers.hap",
    "hidup": "benchmarks.papers.hidup",
    "tag": "benchmarks.papers.tag",
    "superscaler": "benchmarks.papers.superscaler",
    "trainverify": "benchmarks.papers.trainverify",
    "joint": "benchmarks.papers.joint",
    "tessel": "benchmarks.papers.tessel",
    "crossover": "benchmarks.papers.crossover",
    "coconet": "benchmarks.papers.coconet",
    "adama": "benchmarks.papers.adama",
    "evomoe": "benchmarks.papers.evomoe",
    "ngra": "benchmarks.papers.ngra",
    "gnn": "benchmarks.papers.gnn",
    "channels": "benchmarks.papers.channels",
}
"""Each paper's module, which has `reproduce(quick=..., progress=...) -> Study`."""
