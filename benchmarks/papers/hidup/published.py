"""What HiDup (SoCC'22) published: seconds of a step unless it says otherwise, most of them digitised to about 0.5 %."""

from collections.abc import Mapping
from dataclasses import dataclass

MODELS = ("BERT-SGMoE", "BERT-Switch", "ViT-SGMoE", "ViT-Switch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """One model's bars.

    Attributes:
        hidup: Its seconds.
        others: Those of each other system; None where it ran out of memory.
    """

    hidup: tuple[float, ...]
    others: Mapping[str, tuple[float | None, ...]]

    def best(self, index: int) -> float:
        """The seconds of the best other system."""
        return min(seconds for each in self.others.values() if (seconds := each[index]) is not None)


FIGURE_6_GPUS = (8, 16, 32, 64)
FIGURE_6: Mapping[str, Bars] = {
    "BERT-SGMoE": Bars(
        hidup=(1.112, 1.261, 1.463, 2.091),
        others={"DeepSpeed": (1.134, 1.309, 1.706, 2.150), "FastMoE": (1.107, 1.315, 1.987, None)},
    ),
    "BERT-Switch": Bars(
        hidup=(0.868, 0.966, 1.079, 1.427),
        others={"DeepSpeed": (0.874, 1.028, 1.268, 1.602), "FastMoE": (0.808, 1.026, 1.795, 2.382)},
    ),
    "ViT-SGMoE": Bars(
        hidup=(0.344, 0.388, 0.513, 0.796),
        others={"DeepSpeed": (0.592, 0.639, 0.828, 1.046), "FastMoE": (0.396, 0.631, 0.902, 1.528)},
    ),
    "ViT-Switch": Bars(
        hidup=(0.265, 0.308, 0.406, 0.557),
        others={"DeepSpeed": (0.412, 0.450, 0.562, 0.751), "FastMoE": (0.318, 0.408, 0.558, 1.104)},
    ),
}
FIGURE_7_GPUS = (2, 4, 8)
FIGURE_7: Mapping[str, Bars] = {
    "BERT-SGMoE": Bars(hidup=(0.278, 0.289, 0.298), others={"Horovod": (0.275, 0.279, 0.279), "DDP": (0.268, 0.271, None)}),
    "BERT-Switch": Bars(hidup=(0.238, 0.233, 0.236), others={"Horovod": (0.221, 0.225, 0.229)}),
    "ViT-SGMoE": Bars(hidup=(0.097, 0.096, 0.098), others={"Horovod": (0.116, 0.122, 0.132), "DDP": (0.100, 0.103, None)}),
    "ViT-Switch": Bars(hidup=(0.083, 0.089, 0.102), others={"Horovod": (0.094, 0.097, 0.115)}),
}
FIGURE_8_GBITS = (20, 25, 30, 35)
FIGURE_8: Mapping[str, Bars] = {
    "BERT-SGMoE": Bars(
        hidup=(0.746, 0.700, 0.674, 0.669),
        others={"FastMoE": (0.769, 0.738, 0.739, 0.738), "DeepSpeed": (0.815, 0.808, 0.807, 0.797)},
    ),
    "BERT-Switch": Bars(hidup=(0.560, 0.536, 0.530, 0.528), others={"FastMoE": (0.592, None, None, 0.561)}),
    "ViT-SGMoE": Bars(hidup=(0.375, 0.367, 0.349, 0.336), others={"DeepSpeed": (0.398, None, None, 0.383)}),
    "ViT-Switch": Bars(hidup=(0.271, 0.268, 0.262, 0.256), others={"FastMoE": (0.307, None, None, 0.288)}),
}
"""Of the other systems only the first and the last bar were digitised for three of the models."""
TABLE_4: Mapping[str, tuple[float, float, float]] = {
    "hidup-nvlink-4": (0.2972, 0.3492, 0.9192),
    "hidup-2x4-100g": (0.3985, 0.4993, 0.4110),
    "hidup-2x4-30g": (0.6657, 0.7563, 0.2635),
}
"""For each cluster, of BERT-SGMoE: HiDup's seconds, those of the better of DeepSpeed and FastMoE, and the part of HiDup's
communication that overlaps computation.
"""
LARGEST: Mapping[str, Mapping[str, float]] = {
    "figure 6": {"BERT": 1.18, "ViT": 1.61},
    "figure 8": {"": 1.14},
}
"""What the text says: up to how many times as fast as the best other system."""
FIGURE_11: Mapping[int, float] = {10: 90 / 105, 20: 89 / 105, 40: 81 / 105, 80: 81 / 105, 160: 73 / 105, 320: 53 / 105}
"""Gb/s between machines -> the part of the parameters that is replicated."""
FIGURE_14: Mapping[int, float] = {2: 0.13, 4: 0.22, 8: 0.43, 12: 0.65, 16: 0.96, 20: 1.16, 24: 1.36}
"""Layers -> seconds of the search, in Rust. (One layer takes 0.04 s; here every second layer has experts.)"""
TABLE_5: Mapping[str, float] = {
    "20 % random": 1.002,
    "50 % random": 1.129,
    "+20 % communication": 1.0,
    "+50 % communication": 1.0,
    "-20 % communication": 1.0,
    "-50 % communication": 1.172,
}
"""The time of a plan found with wrong costs, relative to that of one found with the right ones."""
