"""Tables that compare what papers published with what comes out here."""

from collections.abc import Mapping

REPRODUCIBLE: Mapping[str, str] = {
    "hap": "dyorc.offline.reproduce.hap",
    "hidup": "dyorc.offline.reproduce.hidup",
    "tag": "dyorc.offline.reproduce.tag",
    "superscaler": "dyorc.offline.reproduce.superscaler",
    "trainverify": "dyorc.offline.reproduce.trainverify",
    "joint": "dyorc.offline.reproduce.joint",
    "tessel": "dyorc.offline.reproduce.tessel",
    "crossover": "dyorc.offline.reproduce.crossover",
    "coconet": "dyorc.offline.reproduce.coconet",
    "adama": "dyorc.offline.reproduce.adama",
    "evomoe": "dyorc.offline.reproduce.evomoe",
    "ngra": "dyorc.offline.reproduce.ngra",
    "gnn": "dyorc.offline.reproduce.gnn",
    "channels": "dyorc.offline.reproduce.channels",
}
"""Each paper's module, which has `reproduce(quick=..., progress=...) -> Study`."""
