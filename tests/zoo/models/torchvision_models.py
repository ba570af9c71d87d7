"""Models of torchvision, by their own classes with few and narrow blocks."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from tests.zoo.models.entry import Entry, Inputs
from tests.zoo.models.inputs import images
from tests.zoo.models.operators import define_missing_operators


def _entry(name: str, make: Callable[[Any], nn.Module], inputs: Callable[[], Any] = images) -> Entry:
    def build() -> tuple[nn.Module, Inputs]:
        define_missing_operators()
        import torchvision.models

        return make(torchvision.models).train(), (inputs(),)

    return Entry(f"torchvision/{name}", build)


def _vgg(models: Any, batch_norm: bool) -> nn.Module:
    net = models.VGG(models.vgg.make_layers([8, "M", 16, "M", 16, 16, "M"], batch_norm), num_classes=10, dropout=0.0)
    net.avgpool = nn.AdaptiveAvgPool2d(2)
    net.classifier[0] = nn.Linear(64, 32)
    net.classifier[3] = nn.Linear(32, 32)
    net.classifier[6] = nn.Linear(32, 10)
    return net


def _alexnet(models: Any) -> nn.Module:
    net = models.AlexNet(num_classes=10, dropout=0.0)
    net.avgpool = nn.AdaptiveAvgPool2d(1)
    net.classifier[1], net.classifier[4], net.classifier[6] = nn.Linear(256, 32), nn.Linear(32, 32), nn.Linear(32, 10)
    return net


def _resnet(models: Any, block: str, **own: Any) -> nn.Module:
    return models.ResNet(getattr(models.resnet, block), [1, 1, 1, 1], num_classes=10, **own)


def _mobilenet_v3(models: Any) -> nn.Module:
    block = partial(models.mobilenetv3.InvertedResidualConfig, width_mult=0.5)
    settings = [
        block(16, 3, 16, 16, True, "RE", 2, 1),
        block(16, 3, 32, 24, False, "HS", 2, 1),
        block(24, 5, 32, 24, True, "HS", 1, 2),
    ]
    return models.MobileNetV3(settings, last_channel=32, num_classes=10, dropout=0.0)


def _efficientnet(models: Any, fused: bool) -> nn.Module:
    config, other = models.efficientnet.MBConvConfig, models.efficientnet.FusedMBConvConfig
    settings = [(other if fused else config)(1, 3, 1, 16, 8, 1), config(4, 3, 2, 8, 16, 1), config(4, 5, 1, 16, 16, 1)]
    return models.EfficientNet(settings, dropout=0.0, stochastic_depth_prob=0.0, num_classes=10, last_channel=32)


def _regnet(models: Any, **own: Any) -> nn.Module:
    params = models.regnet.BlockParams.from_init_params(depth=4, w_0=16, w_a=8.0, w_m=2.0, group_width=8, **own)
    return models.RegNet(params, num_classes=10, stem_width=8)


def _convnext(models: Any) -> nn.Module:
    block = models.convnext.CNBlockConfig
    return models.ConvNeXt([block(8, 16, 1), block(16, None, 1)], stochastic_depth_prob=0.0, num_classes=10)


def _swin(models: Any, **own: Any) -> nn.Module:
    return models.SwinTransformer([2, 2], 8, [2, 2], [1, 2], [4, 4], stochastic_depth_prob=0.0, num_classes=10, **own)


def _swin_v2(models: Any) -> nn.Module:
    parts = models.swin_transformer
    return _swin(models, block=parts.SwinTransformerBlockV2, downsample_layer=parts.PatchMergingV2)


def _segmentation(models: Any, head: str) -> nn.Module:
    parts = models.segmentation
    body = models._utils.IntermediateLayerGetter(_resnet(models, "BasicBlock"), {"layer2": "out"})
    if head == "fcn":
        return parts.fcn.FCN(body, parts.fcn.FCNHead(128, 5), None)
    return parts.deeplabv3.DeepLabV3(body, parts.deeplabv3.DeepLabHead(128, 5, [1, 2]), None)


def _lraspp(models: Any) -> nn.Module:
    body = models._utils.IntermediateLayerGetter(_resnet(models, "BasicBlock"), {"layer1": "low", "layer3": "high"})
    return models.segmentation.lraspp.LRASPP(body, 64, 256, num_classes=5, inter_channels=16)


def _video(models: Any, kind: str) -> nn.Module:
    return getattr(models.video, kind)(num_classes=10)


def _videos() -> Any:
    import torch

    return torch.randn(4, 3, 4, 16, 16)


def _mvit(models: Any) -> nn.Module:
    block = models.video.mvit.MSBlockConfig
    settings = [
        block(1, 8, 16, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]), block(2, 16, 16, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1]),
    ]  # fmt: skip
    return models.video.MViT((16, 16), 4, settings, True, True, True, True, dropout=0.0, num_classes=10)


ZOO = [
    _entry("alexnet", _alexnet, partial(images, pixels=64)),
    _entry("vgg", partial(_vgg, batch_norm=False)),
    _entry("vgg_bn", partial(_vgg, batch_norm=True)),
    _entry("resnet18", partial(_resnet, block="BasicBlock"), partial(images, 4)),
    _entry("resnet50", partial(_resnet, block="Bottleneck", width_per_group=8), partial(images, 4)),
    _entry("resnext50", partial(_resnet, block="Bottleneck", groups=4, width_per_group=4), partial(images, 4)),
    _entry("mobilenet_v2", lambda m: m.MobileNetV2(10, 0.25, [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 1, 2]], dropout=0.0)),
    _entry("mobilenet_v3", _mobilenet_v3),
    _entry("mnasnet", lambda m: m.MNASNet(0.1, num_classes=10, dropout=0.0), partial(images, 4)),
    _entry("efficientnet", partial(_efficientnet, fused=False)),
    _entry("efficientnet_v2", partial(_efficientnet, fused=True)),
    _entry("densenet", lambda m: m.DenseNet(8, (2, 2), 8, num_classes=10)),
    _entry("googlenet", lambda m: m.GoogLeNet(10, aux_logits=False, init_weights=False, dropout=0.0), partial(images, 4)),
    _entry("inception_v3", lambda m: m.Inception3(10, aux_logits=False, init_weights=False, dropout=0.0), partial(images, 4, 75)),
    _entry("shufflenet_v2", lambda m: m.ShuffleNetV2([2, 2, 2], [8, 16, 32, 32, 32], num_classes=10)),
    _entry("squeezenet", lambda m: m.SqueezeNet("1_1", num_classes=10, dropout=0.0), partial(images, 4)),
    _entry("regnet_x", _regnet),
    _entry("regnet_y", partial(_regnet, se_ratio=0.25)),
    _entry("convnext", _convnext),
    _entry("vit", lambda m: m.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=10)),
    _entry("swin", _swin),
    _entry("swin_v2", _swin_v2),
    _entry("maxvit", lambda m: m.MaxVit((32, 32), 8, 4, [8, 16], [1, 1], 8, stochastic_depth_prob=0.0, num_classes=10)),
    _entry("fcn", partial(_segmentation, head="fcn"), partial(images, 4)),
    _entry("deeplabv3", partial(_segmentation, head="deeplabv3"), partial(images, 4)),
    _entry("lraspp", _lraspp, partial(images, 4)),
    _entry("r3d", partial(_video, kind="r3d_18"), _videos),
    _entry("mvit", _mvit, _videos),
]
