"""What TrainVerify published: its paper (arXiv 2506.15961) and the results in its artefact, in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A verified plan.

    Attributes:
        name: With how it is split.
        total_s: From capture to verdict.
        sizes: Of the model, as `models.llama` takes them; empty if it is not among the models here.
        ways: How it is split: data, tensor and pipeline parallel, and microbatches.
        layers: How many.
    """

    name: str
    total_s: float
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    ways: Mapping[str, int] = field(default_factory=dict[str, int])
    layers: int = 0


def _llama(hidden: int, heads: int, inner: int) -> dict[str, int]:
    return {"hidden": hidden, "heads": heads, "kv_heads": 8, "inner": inner, "vocabulary": 128_256, "sequence": 8192}


MODELS = (
    Model(
        name="Llama 3 8B, dp 512",
        total_s=685,
        sizes=_llama(4096, 32, 14_336),
        ways={"dp": 512, "tp": 1, "pp": 1, "microbatches": 1},
        layers=32,
    ),
    Model(
        name="Llama 3 70B, dp 16, pp 4, tp 8, 32 microbatches",
        total_s=8532,
        sizes=_llama(8192, 64, 28_672),
        ways={"dp": 16, "tp": 8, "pp": 4, "microbatches": 32},
        layers=80,
    ),
    Model(
        name="Llama 3 405B, dp 64, pp 16, tp 8, 16 microbatches",
        total_s=28_786,
        sizes=_llama(16_384, 128, 53_248),
        ways={"dp": 64, "tp": 8, "pp": 16, "microbatches": 16},
        layers=126,
    ),
    Model(name="DeepSeek V3 16B, dp 16, pp 2, tp 4, 16 microbatches", total_s=1351),
    Model(name="DeepSeek V3 236B, dp 16, pp 4, tp 8", total_s=8484),
    Model(name="DeepSeek V3 671B, dp 32, pp 8, tp 8", total_s=32_371),
)

GROWTH: Mapping[str, Mapping[int, float]] = {
    "microbatches": {2: 224, 4: 452, 8: 851, 16: 1714, 32: 3532},
    "tp": {1: 107, 2: 261, 4: 412, 8: 875},
    "dp": {2: 115, 8: 447, 16: 914, 32: 2093, 64: 3670},
    "layers": {4: 143, 8: 242, 16: 497, 32: 949},
}
"""Seconds over what grows, for 32 layers and twofold splits otherwise."""

CONSTANT: Mapping[str, tuple[int, ...]] = {
    "pp": (2, 16),
    "batch": (512, 4096),
    "heads": (8, 128),
    "hidden": (1024, 16_384),
    "sequence": (128, 8192),
}
"""What verification does not depend on, and the range in which that was tried."""
CONSTANT_S = (14.9, 16.0)
"""The shortest and the longest time in these ranges."""

CAUGHT_BY = (
    "solver",
    "reachability",
    "shape mismatch",
    "infeasible shape reduction",
    "solver",
    "reachability",
    "solver",
    "solver",
    "solver",
    "solver",
    "reachability",
    "solver",
    "solver",
    "KeyError in alignment",
)
"""What found each of the fourteen bugs."""
