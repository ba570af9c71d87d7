"""What HAP's figures show, in seconds where nothing else is said; digitised from the paper's graphics, to about 0.5 %."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.papers.measured import Builder
from benchmarks.papers.models.published import hap_bert, hap_bert_moe, hap_vgg19, hap_vit


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """One model's bars, for four numbers of GPUs.

    Attributes:
        model: Builds it, without weights.
        hap: HAP's bars.
        baselines: Those of others, by the planner that makes such plans here.
    """

    model: Builder
    hap: tuple[float, ...]
    baselines: Mapping[str, tuple[float, ...]]


FIGURE_13_GPUS = (8, 16, 32, 64)
FIGURE_13: Mapping[str, Bars] = {
    "VGG19": Bars(
        model=hap_vgg19,
        hap=(0.204, 0.298, 0.401, 0.664),
        baselines={"dp_even": (1.238, 1.287, 1.383, 1.584), "dp_proportional": (1.047, 1.163, 1.386, 1.506)},
    ),
    "ViT": Bars(
        model=hap_vit,
        hap=(0.444, 0.467, 0.491, 0.519),
        baselines={"dp_even": (0.557, 0.555, 0.602, 0.630), "dp_proportional": (0.453, 0.459, 0.528, 0.528)},
    ),
    "BERT-Base": Bars(
        model=hap_bert,
        hap=(0.872, 0.922, 0.962, 0.994),
        baselines={"dp_even": (0.907, 1.037, 1.305, 1.334), "dp_proportional": (0.921, 0.966, 1.040, 1.272)},
    ),
    "BERT-MoE": Bars(
        model=hap_bert_moe, hap=(1.350, 1.764, 2.335, 3.791), baselines={"expert_parallel": (1.378, 1.877, 2.458, 3.824)}
    ),
}
"""Eight machines, two with V100 and six with P100. BERT-MoE needs more memory by data parallelism than there is: DeepSpeed's."""

FIGURE_14_GPUS = (8, 16, 24, 32)
FIGURE_14: Mapping[str, Bars] = {
    "VGG19": Bars(model=hap_vgg19, hap=(0.178, 0.258, 0.349, 0.426), baselines={"dp_even": (0.871, 1.074, 1.197, 1.201)}),
    "ViT": Bars(model=hap_vit, hap=(0.459, 0.463, 0.570, 0.618), baselines={"dp_even": (0.524, 0.602, 0.620, 0.736)}),
    "BERT-Base": Bars(model=hap_bert, hap=(0.805, 0.894, 0.912, 1.000), baselines={"dp_even": (0.910, 1.031, 1.110, 1.142)}),
    "BERT-MoE": Bars(
        model=hap_bert_moe, hap=(1.494, 1.964, 2.462, 3.034), baselines={"expert_parallel": (1.812, 2.159, 2.786, 3.169)}
    ),
}
"""Four machines with P100."""

FIGURE_15: Mapping[str, tuple[float | None, ...]] = {
    "VGG19": (0.419, 0.926, 1.0),
    "ViT": (0.824, 0.948, 1.0),
    "BERT-Base": (0.745, 0.863, 1.0),
    "BERT-MoE": (None, 0.903, 1.0),
}
"""Parts of the full throughput on 64 GPUs: even data parallelism, HAP's program with even shares, and balanced shares with padded
collectives only. That these are 64 GPUs follows from figure 13.
"""

FIGURE_16 = {"VGG19": (0.642, 0.462), "ViT": (0.964, 0.403), "BERT-Base": (0.912, 0.402), "BERT-MoE": (0.781, 0.536)}
"""Throughput on all devices, relative to two trainings side by side on V100 and on P100 alone; the V100s' part of the latter."""

_FIGURE_17_HAP = """
    .295 .329 .329 .368 .370 .412 .429 .429 .429 .431 .451 .479 .499 .500 .531 .557 .561 .603 .627 .630 .653 .668 .672 .707 .740
    .748 .767 .818 .819
"""
FIGURE_17_HAP = dict(zip(range(4, 33), map(float, _FIGURE_17_HAP.split()), strict=True))
"""Seconds by the number of experts, on two A100 and two P100."""
FIGURE_17_DEEPSPEED = {4: 0.394, 8: 0.471, 12: 0.587, 16: 0.645, 20: 0.784, 24: 0.956, 28: 1.045, 32: 1.226}
"""The same of DeepSpeed, which rounds up to a multiple of four."""

FIGURE_18 = {"correlation": 0.970, "mean error": 0.184, "mean predicted / measured": 0.87}
"""Of the 12 points of predicted and measured seconds; the first is printed, the others follow from the points."""

FIGURE_19 = {1: 0.06, 2: 0.11, 4: 0.23, 6: 0.42, 8: 0.65, 10: 1.02, 12: 1.49, 16: 2.76, 20: 4.55, 24: 6.82}
"""Seconds of synthesis by layers of ViT, in Rust."""

FIGURE_2 = (
    (0.22, 51.7, 42.5),
    (0.37, 57.6, 49.4),
    (0.83, 65.1, 64.8),
    (1.29, 72.5, 74.2),
    (1.73, 84.1, 86.4),
    (2.42, 88.3, 97.8),
    (2.74, 94.4, 112.7),
)
"""Computation / communication, and milliseconds with shares in proportion to speed and with even ones."""
