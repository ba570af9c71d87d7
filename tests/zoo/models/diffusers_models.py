"""Models of diffusers: what predicts noise, and what makes images of latent ones."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.zoo.models.entry import Entry, Inputs
from tests.zoo.models.inputs import images
from tests.zoo.models.operators import define_missing_operators

_BATCH = 4


def _entry(cls: str, inputs: Callable[[], dict[str, Any]], name: str = "", **own: Any) -> Entry:
    def build() -> tuple[nn.Module, Inputs]:
        define_missing_operators()  # transformers imports it, if it is there
        import diffusers

        return getattr(diffusers, cls)(**own).train(), inputs()

    return Entry(f"diffusers/{name or cls}", build)


def _times() -> torch.Tensor:
    return torch.randint(0, 1000, (_BATCH,))


def _latent(channels: int = 4, pixels: int = 8) -> torch.Tensor:
    return images(_BATCH, pixels, channels)


def _words(width: int = 16) -> torch.Tensor:
    return torch.randn(_BATCH, 6, width)


def _noisy() -> dict[str, Any]:
    return {"sample": images(_BATCH, 16), "timestep": _times()}


def _conditioned() -> dict[str, Any]:
    return {"sample": _latent(), "timestep": _times(), "encoder_hidden_states": _words()}


_BLOCKS: dict[str, Any] = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}
_CONDITIONED: dict[str, Any] = _BLOCKS | {
    "cross_attention_dim": 16, "attention_head_dim": 2, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
}  # fmt: skip
ZOO = [
    _entry("UNet2DModel", _noisy, sample_size=16, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
           up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4, **_BLOCKS),
    _entry("UNet2DConditionModel", _conditioned, sample_size=8, up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
           **_CONDITIONED),
    _entry("ControlNetModel", lambda: _conditioned() | {"controlnet_cond": images(_BATCH, 64)},
           conditioning_embedding_out_channels=(8, 8, 8, 8), **_CONDITIONED),
    _entry("UNet3DConditionModel",
           lambda: {"sample": torch.randn(2, 4, 2, 8, 8), "timestep": _times()[:2], "encoder_hidden_states": _words()[:2]},
           sample_size=8, down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
           up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"), cross_attention_dim=16, attention_head_dim=2, **_BLOCKS),
    _entry("AutoencoderKL", lambda: {"sample": images(_BATCH, 16)}, down_block_types=("DownEncoderBlock2D",) * 2,
           up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, **_BLOCKS),
    _entry("AsymmetricAutoencoderKL", lambda: {"sample": images(_BATCH, 16)}, down_block_types=("DownEncoderBlock2D",) * 2,
           up_block_types=("UpDecoderBlock2D",) * 2, down_block_out_channels=(8, 16), up_block_out_channels=(8, 16),
           norm_num_groups=4),
    _entry("AutoencoderTiny", lambda: {"sample": images(_BATCH, 16)}, encoder_block_out_channels=(8, 8),
           decoder_block_out_channels=(8, 8), num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)),
    _entry("VQModel", lambda: {"sample": images(_BATCH, 16)}, down_block_types=("DownEncoderBlock2D",) * 2,
           up_block_types=("UpDecoderBlock2D",) * 2, num_vq_embeddings=16, latent_channels=4, **_BLOCKS),
    _entry("DiTTransformer2DModel",
           lambda: {"hidden_states": _latent(), "timestep": _times(), "class_labels": torch.randint(0, 10, (_BATCH,))},
           num_attention_heads=2, attention_head_dim=8, num_layers=2, sample_size=8, num_embeds_ada_norm=1000,
           norm_type="ada_norm_zero", out_channels=8),
    _entry("Transformer2DModel", lambda: {"hidden_states": _latent(8), "encoder_hidden_states": _words()}, num_attention_heads=2,
           attention_head_dim=4, in_channels=8, num_layers=2, norm_num_groups=4, cross_attention_dim=16),
    _entry("PixArtTransformer2DModel",
           lambda: {"hidden_states": _latent(), "timestep": _times(), "encoder_hidden_states": _words()}, num_attention_heads=2,
           attention_head_dim=8, num_layers=2, sample_size=8, cross_attention_dim=16, caption_channels=16),
    _entry("SD3Transformer2DModel",
           lambda: {"hidden_states": _latent(), "timestep": _times(), "encoder_hidden_states": _words(),
                    "pooled_projections": torch.randn(_BATCH, 16)},
           sample_size=8, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=16,
           caption_projection_dim=16, pooled_projection_dim=16, out_channels=4, pos_embed_max_size=8),
    _entry("FluxTransformer2DModel",
           lambda: {"hidden_states": torch.randn(_BATCH, 16, 4), "timestep": torch.rand(_BATCH),
                    "encoder_hidden_states": _words(), "pooled_projections": torch.randn(_BATCH, 16),
                    "img_ids": torch.rand(16, 3),
                    "txt_ids": torch.rand(6, 3)},
           patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=2,
           joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=(2, 2, 4)),
    _entry("SanaTransformer2DModel",
           lambda: {"hidden_states": _latent(), "timestep": _times(), "encoder_hidden_states": _words()}, in_channels=4,
           out_channels=4, num_attention_heads=2, attention_head_dim=8, num_layers=2, num_cross_attention_heads=2,
           cross_attention_head_dim=8, cross_attention_dim=16, caption_channels=16, sample_size=8, patch_size=1),
    _entry("PriorTransformer",
           lambda: {"hidden_states": torch.randn(_BATCH, 16), "timestep": _times(), "proj_embedding": torch.randn(_BATCH, 16),
                    "encoder_hidden_states": _words()},
           num_attention_heads=2, attention_head_dim=8, num_layers=2, embedding_dim=16, num_embeddings=6),
    _entry("T2IAdapter", lambda: {"x": images(_BATCH, 32)}, channels=[8, 16], num_res_blocks=1, downscale_factor=4),
    _entry("WanTransformer3DModel",
           lambda: {"hidden_states": torch.randn(2, 4, 1, 8, 8), "timestep": _times()[:2], "encoder_hidden_states": _words()[:2]},
           num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=8, ffn_dim=32,
           num_layers=1, patch_size=(1, 2, 2)),
    _entry("AuraFlowTransformer2DModel",
           lambda: {"hidden_states": _latent(), "timestep": torch.rand(_BATCH), "encoder_hidden_states": _words()}, sample_size=8,
           num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=16,
           caption_projection_dim=16, out_channels=4, pos_embed_max_size=16),
]  # fmt: skip
