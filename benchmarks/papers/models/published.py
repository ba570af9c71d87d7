"""The models of the papers' tables, in their sizes and without weights: what their figures are compared with.

Sources: HAP (EuroSys'24), table 1, whose counts of parameters fix the sizes; HiDup (SoCC'22), section 5; TAG (TPDS'23), its
code. TAG's InceptionV3 and ResNet-101 are not here, and its batches are not known.
"""

import torch
from torch import nn

from dyorc.planner.models.bert import bert, bert_moe
from dyorc.planner.models.moe import Gate
from dyorc.planner.models.vgg import vgg19
from dyorc.planner.models.vit import vit, vit_moe

_WORDS = 33_278
"""The vocabulary of WikiText-2."""
Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


def _words(num_devices: int) -> int:
    """The vocabulary, rounded up so that all devices get equally many words."""
    return -(-_WORDS // num_devices) * num_devices


def hap_vgg19(*, num_devices: int = 1, batch_each: int = 64) -> Model:
    """VGG19 for CIFAR-10: 139.6 million parameters, of which 119.6 are in the products."""
    with torch.device("meta"):
        return vgg19(width=64, inner=4096, batch=batch_each * num_devices)


def hap_vit(*, layers: int = 8, num_devices: int = 1, batch_each: int = 64) -> Model:
    """ViT for CIFAR-10: 56.7 million parameters, 64 tokens for each image."""
    with torch.device("meta"):
        return vit(layers=layers, hidden=768, heads=12, patch=4, batch=batch_each * num_devices)


def hap_bert(*, layers: int = 8, num_devices: int = 1, batch_each: int = 64) -> Model:
    """BERT for WikiText-2: 107.8 million parameters, 128 tokens for each sample."""
    with torch.device("meta"):
        return bert(
            layers=layers, hidden=768, heads=12, vocabulary=_words(num_devices), sequence=128, batch=batch_each * num_devices
        )


def hap_bert_moe(
    num_devices: int,
    *,
    layers: int = 8,
    experts_each: int = 2,
    gate: Gate = "top2",
    batch_each: int = 32,
) -> Model:
    """BERT-MoE for WikiText-2: 88.9 million parameters, and 37.8 more for each device with two experts."""
    with torch.device("meta"):
        return bert_moe(
            layers=layers,
            hidden=768,
            heads=12,
            vocabulary=_words(num_devices),
            sequence=128,
            batch=batch_each * num_devices,
            experts=experts_each * num_devices,
            gate=gate,
        )


def hidup_bert(num_devices: int, *, gate: Gate = "top2", layers: int = 8, experts_each: int = 1, batch_each: int = 32) -> Model:
    """HiDup's BERT-SGMoE (`top2`) or BERT-Switch: 89 million parameters, and 19 more for each device with one expert."""
    return hap_bert_moe(num_devices, layers=layers, experts_each=experts_each, gate=gate, batch_each=batch_each)


def hidup_vit(num_devices: int, *, gate: Gate = "top2", layers: int = 8, experts_each: int = 2, batch_each: int = 32) -> Model:
    """HiDup's ViT-SGMoE (`top2`) or ViT-Switch: 38 million parameters, and 38 more for each device with two experts."""
    with torch.device("meta"):
        return vit_moe(
            layers=layers,
            hidden=768,
            heads=12,
            patch=4,
            batch=batch_each * num_devices,
            experts=experts_each * num_devices,
            gate=gate,
        )


def tag_vgg19(*, batch: int = 96) -> Model:
    """TAG's VGG19, for ImageNet."""
    with torch.device("meta"):
        return vgg19(width=64, inner=4096, size=224, batch=batch)


def tag_transformer(*, batch: int = 96) -> Model:
    """TAG's Transformer: 8 heads, 512 features, 2048 inside, 10 tokens; here six encoders, with a vocabulary of our choice."""
    with torch.device("meta"):
        return bert(layers=6, hidden=512, heads=8, inner=2048, vocabulary=32_000, sequence=10, batch=batch)


def tag_bert(*, layers: int = 4, hidden: int = 1024, inner: int = 1024, batch: int = 96) -> Model:
    """TAG's BERT-small; its BERT-large has 24 layers of 2048 features, and as many inside."""
    with torch.device("meta"):
        return bert(layers=layers, hidden=hidden, heads=16, inner=inner, vocabulary=30_522, sequence=128, batch=batch)
