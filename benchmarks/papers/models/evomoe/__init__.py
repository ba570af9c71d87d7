"""EvoMoE (arXiv 2112.14397): a mixture of experts that begins with one expert, and with a gate that sends tokens to many."""

from benchmarks.papers.models.evomoe.experts import LocalExperts, ParallelExperts
from benchmarks.papers.models.evomoe.gates import DenseToSparseGate, EveryGate, HashGate, Routing, Schedule, SwitchGate
from benchmarks.papers.models.evomoe.layer import Diversity, EvolvingExperts, MixtureLayer

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
