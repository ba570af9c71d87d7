"""Models of timm, by name, with few and narrow blocks."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from tests.zoo.models.entry import Entry, Inputs
from tests.zoo.models.inputs import images
from tests.zoo.models.operators import define_missing_operators


def _entry(name: str, inputs: Callable[[], Any] = images, **own: Any) -> Entry:
    return _own(name, lambda timm: timm.create_model(name, pretrained=False, num_classes=10, **own), inputs)


def _own(name: str, make: Callable[[Any], nn.Module], inputs: Callable[[], Any] = images) -> Entry:
    """A model whose sizes its name fixes is made by its class."""

    def build() -> tuple[nn.Module, Inputs]:
        define_missing_operators()
        import timm

        return make(timm).train(), (inputs(),)

    return Entry(f"timm/{name}", build)


def _mixer(timm: Any, **own: Any) -> nn.Module:
    return timm.models.mlp_mixer.MlpMixer(10, 32, patch_size=8, num_blocks=2, embed_dim=16, **own)


def _resmlp(timm: Any) -> nn.Module:
    parts = timm.models.mlp_mixer
    return _mixer(timm, mlp_ratio=4, block_layer=parts.ResBlock, norm_layer=parts.Affine)


def _gmlp(timm: Any) -> nn.Module:
    parts = timm.models.mlp_mixer
    return _mixer(timm, mlp_ratio=4, block_layer=parts.SpatialGatingBlock, mlp_layer=timm.layers.GatedMlp)


def _ghostnet(timm: Any) -> nn.Module:
    stages = [[[3, 16, 16, 0, 1]], [[3, 48, 24, 0.25, 2]]]
    return timm.models.ghostnet.GhostNet(stages, num_classes=10, width=0.5, drop_rate=0.0)


def _metaformer(timm: Any) -> nn.Module:
    parts = timm.models.metaformer
    return parts.MetaFormer(num_classes=10, depths=(1, 1), dims=(8, 16), token_mixers=parts.Pooling, use_mlp_head=False)


def _volo(timm: Any) -> nn.Module:
    return timm.models.volo.VOLO(
        [1, 1], 32, num_classes=10, patch_size=8, stem_hidden_dim=8, embed_dims=[16, 32], num_heads=[2, 2],
        downsamples=(True, False),
        outlook_attention=(True, False), mlp_ratio=2.0, use_mix_token=False,
    )  # fmt: skip


_VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
ZOO = [
    _entry("vit_tiny_patch16_224", **_VIT),
    _entry("deit_tiny_distilled_patch16_224", **_VIT),
    _entry("eva02_tiny_patch14_224", **_VIT),
    _entry("cait_xxs24_224", **_VIT),
    _entry("xcit_nano_12_p8_224", **_VIT),
    _entry("beit_base_patch16_224", **_VIT),
    _own("volo", _volo),
    _entry("twins_svt_small", img_size=32, embed_dims=(8, 16), num_heads=(1, 2), mlp_ratios=(2, 2), depths=(1, 1), wss=(4, 4),
           sr_ratios=(2, 1)),
    _own("mixer", _mixer),
    _own("resmlp", _resmlp),
    _own("gmlp", _gmlp),
    _own("convmixer", lambda timm: timm.models.convmixer.ConvMixer(16, 2, kernel_size=3, patch_size=4, num_classes=10)),
    _entry("resnet10t", channels=(8, 8, 16, 16)),
    _entry("seresnet18", layers=(1, 1, 1, 1), channels=(8, 8, 16, 16)),
    _entry("skresnet18", partial(images, 4), layers=(1, 1, 1, 1)),
    _entry("resnest14d", partial(images, 4), base_width=8, stem_width=8),
    _own("ghostnet", _ghostnet, partial(images, 4)),
    _entry("nf_regnet_b0", partial(images, 4), depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), stem_chs=8),
    _entry("repvgg_a0", partial(images, 4), stem_chs=8),
    _entry("edgenext_xx_small", dims=(8, 8, 16, 16), depths=(1, 1, 1, 1)),
    _entry("convnextv2_atto", dims=(8, 8, 16, 16), depths=(1, 1, 1, 1)),
    _own("poolformerv2", _metaformer),
    _entry("hgnet_tiny", partial(images, 4)),
    _entry("dla34", partial(images, 4), channels=(8, 8, 16, 16, 16, 16)),
    _entry("sequencer2d_s", img_size=32, layers=(1, 1), patch_sizes=(4, 2), embed_dims=(8, 16), hidden_sizes=(4, 8),
           mlp_ratios=(2.0, 2.0)),
    _entry("rexnet_100", partial(images, 4), width_mult=0.2),
    _entry("mobilenetv4_conv_small_050", partial(images, 4)),
    _entry("lambda_resnet26t", partial(images, 4, 64)),
]  # fmt: skip
