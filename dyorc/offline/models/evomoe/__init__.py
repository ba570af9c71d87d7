"""EvoMoE (arXiv 2112.14397): a mixture of experts that begins with one expert, and with a gate that sends tokens to many."""

from dyorc.offline.models.evomoe.experts import LocalExperts, ParallelExperts
from dyorc.offline.models.evomoe.gates import DenseToSparseGate, EveryGate, HashGate, Routing, Schedule, SwitchGate
from dyorc.offline.models.evomoe.layer import Diversity, EvolvingExperts, MixtureLayer

__all__ = [
    "DenseToSparseGate",
    "Diversity",
    "EveryGate",
    "EvolvingExperts",
    "HashGate",
    "LocalExperts",
    "MixtureLayer",
    "ParallelExperts",
    "Routing",
    "Schedule",
    "SwitchGate",
]
