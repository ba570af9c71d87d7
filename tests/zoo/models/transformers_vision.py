"""Models of images."""

from functools import partial
from typing import Any

import torch

from tests.zoo.models.configured import built, configuration
from tests.zoo.models.entry import Entry, Inputs
from tests.zoo.models.inputs import BATCH, classes, images


def _labelled(pixels: int = 32) -> Inputs:
    return {"pixel_values": images(pixels=pixels), "labels": classes()}


def _bare() -> Inputs:
    return {"pixel_values": images()}


def _segmented() -> Inputs:
    return {"pixel_values": images(), "labels": torch.randint(0, 10, (BATCH, 32, 32))}


def _entry(model_type: str, auto: str = "AutoModelForImageClassification", *, pixels: int = 32, **own: Any) -> Entry:
    inputs = (
        partial(_labelled, pixels) if auto.endswith("ForImageClassification") else _segmented if "Segmentation" in auto else _bare
    )
    return Entry(f"transformers/{model_type}", built(auto, partial(configuration, model_type, **own), inputs))


_STAGES = {"depths": [1, 1], "hidden_sizes": [8, 16]}
ZOO = [
    _entry("vit"),
    _entry("deit", "DeiTForImageClassification"),
    _entry("beit", use_relative_position_bias=True),
    _entry("data2vec-vision", use_relative_position_bias=True),
    _entry("swin", patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4),
    _entry("swinv2", patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4),
    _entry("convnext", num_stages=2, patch_size=4, **_STAGES),
    _entry("convnextv2", num_stages=2, patch_size=4, **_STAGES),
    _entry("dinov2"),
    _entry("dinov2_with_registers"),
    _entry("ijepa"),
    _entry("vit_msn"),
    _entry("segformer", "AutoModelForSemanticSegmentation", num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1],
           hidden_sizes=[8, 16], patch_sizes=[3, 3], strides=[2, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
           decoder_hidden_size=16),
    _entry("poolformer", depths=[1, 1], hidden_sizes=[8, 16], patch_sizes=[3, 3], strides=[2, 2], padding=[1, 1],
           num_encoder_blocks=2),
    _entry("cvt", embed_dim=[8, 8, 16], num_heads=[1, 1, 2], depth=[1, 1, 1], drop_rate=[0.0] * 3, drop_path_rate=[0.0] * 3),
    _entry("mobilevit", hidden_sizes=[8, 12, 16], neck_hidden_sizes=[4, 8, 8, 12, 12, 16, 16], patch_size=2, mlp_ratio=2.0,
           output_stride=32),
    _entry("mobilevitv2", pixels=64, width_multiplier=0.25, patch_size=2),
    _entry("mobilenet_v2", depth_multiplier=0.25, min_depth=8, finegrained_output=False),
    _entry("regnet", embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], groups_width=8),
    _entry("resnet", embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], layer_type="basic"),
    _entry("bit", embedding_size=8, hidden_sizes=[32, 32, 32, 32], depths=[1, 1, 1, 1], num_groups=2),
    _entry("efficientnet", width_coefficient=0.25, depth_coefficient=0.1, hidden_dim=320),
    _entry("levit", "LevitForImageClassification", pixels=64, hidden_sizes=[16, 24, 32], num_attention_heads=[1, 2, 2],
           depths=[1, 1, 1], key_dim=[8, 8, 8], image_size=64),
    _entry("focalnet", patch_size=4, embed_dim=8, depths=[1, 1], focal_levels=[1, 1], focal_windows=[3, 3]),
    _entry("pvt", patch_sizes=[4, 2, 2, 2], depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2],
           sequence_reduction_ratios=[2, 2, 1, 1], mlp_ratios=[2, 2, 2, 2]),
    _entry("pvt_v2", depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], mlp_ratios=[2, 2, 2, 2]),
    _entry("hiera", image_size=[32, 32], embed_dim=8, depths=[1, 1], num_heads=[1, 2], patch_size=[7, 7],
           patch_stride=[4, 4], patch_padding=[3, 3], masked_unit_size=[4, 4], num_query_pool=1, query_stride=[2, 2]),
    _entry("dpt", "DPTForSemanticSegmentation", num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3],
           neck_hidden_sizes=[8, 8, 8, 8],
           fusion_hidden_size=8, reassemble_factors=[4, 2, 1, 0.5]),
    _entry("yolos", "AutoModel", image_size=[32, 32], num_detection_tokens=4),
    _entry("vitdet", "AutoModel", window_block_indices=[0], window_size=2),
    _entry("textnet", "AutoModel"),
    _entry("detr", "AutoModelForObjectDetection", use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
           num_queries=4, encoder_attention_heads=2, decoder_attention_heads=2),
]  # fmt: skip
