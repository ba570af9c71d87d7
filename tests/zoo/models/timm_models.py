"""Models of timm, by name, with few and narrow blocks."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from tests.zoo.models.entry import Entry, Inputs
from tests.zoo.models.inputs import images
from tests.zoo.models.operators import define_missing_operators


def _entry(name: str, inputs: Callable[[], Any] = images, **own: Any) -> Entry:
    def build() -> tuple[nn.Module, Inputs]:
        define_missing_operators()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **own).train(), (inputs(),)

    return Entry(f"timm/{name}", build)


_VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
ZOO = [
    _entry("vit_tiny_patch16_224", **_VIT),
    _entry("deit_tiny_distilled_patch16_224", **_VIT),
    _entry("eva02_tiny_patch14_224", **_VIT),
    _entry("cait_xxs24_224", **_VIT),
    _entry("xcit_nano_12_p8_224", **_VIT),
    _entry("beit_base_patch16_224", **_VIT),
    _entry("volo_d1_224", img_size=32, layers=(1, 1), embed_dims=(16, 32), num_heads=(2, 2), mlp_ratios=(2, 2),
           downsamples=(True, False), patch_size=8, stem_hidden_dim=16),
    _entry("twins_svt_small", img_size=32, embed_dims=(8, 16), num_heads=(1, 2), mlp_ratios=(2, 2), depths=(1, 1), wss=(4, 4),
           sr_ratios=(2, 1)),
    _entry("mixer_s32_224", img_size=32, patch_size=8, embed_dim=16, num_blocks=2),
    _entry("resmlp_12_224", img_size=32, patch_size=8, embed_dim=16, num_blocks=2),
    _entry("gmlp_ti16_224", img_size=32, patch_size=8, embed_dim=16, num_blocks=2),
    _entry("convmixer_768_32", dim=16, depth=2, kernel_size=3, patch_size=4),
    _entry("resnet10t", channels=(8, 8, 16, 16)),
    _entry("seresnet18", layers=(1, 1, 1, 1), channels=(8, 8, 16, 16)),
    _entry("skresnet18", partial(images, 4), layers=(1, 1, 1, 1)),
    _entry("resnest14d", partial(images, 4), base_width=8, stem_width=8),
    _entry("ghostnet_050", partial(images, 4), width=0.1),
    _entry("nf_regnet_b0", partial(images, 4), depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), stem_chs=8),
    _entry("repvgg_a0", partial(images, 4), stem_chs=8),
    _entry("edgenext_xx_small", dims=(8, 8, 16, 16), depths=(1, 1, 1, 1)),
    _entry("convnextv2_atto", dims=(8, 8, 16, 16), depths=(1, 1, 1, 1)),
    _entry("poolformerv2_s12", embed_dims=(8, 8, 16, 16), layers=(1, 1, 1, 1)),
    _entry("hgnet_tiny", partial(images, 4)),
    _entry("dla34", partial(images, 4), channels=(8, 8, 16, 16, 16, 16)),
    _entry("sequencer2d_s", img_size=32, layers=(1, 1), patch_sizes=(4, 2), embed_dims=(8, 16), hidden_sizes=(4, 8),
           mlp_ratios=(2.0, 2.0)),
    _entry("rexnet_100", partial(images, 4), width_mult=0.2),
    _entry("mobilenetv4_conv_small", partial(images, 4), channel_multiplier=0.25),
    _entry("lambda_resnet26t", partial(images, 4, 64)),
]  # fmt: skip
