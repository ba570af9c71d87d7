"""Models of sound, of images with text, and of series."""

from functools import partial
from typing import Any

import torch

from tests.zoo.models.configured import built, configuration
from tests.zoo.models.entry import Entry, Inputs
from tests.zoo.models.inputs import BATCH, WORDS, classes, images, mask, words

_TEXT: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": WORDS,
    "max_position_embeddings": 16, "projection_dim": 16, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
_IMAGE: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32,
    "patch_size": 8, "projection_dim": 16,
}  # fmt: skip
_SPEECH: dict[str, Any] = {
    "conv_dim": [8, 8], "conv_stride": [4, 2], "conv_kernel": [8, 4], "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False, "mask_time_prob": 0.0, "mask_feature_prob": 0.0,
}  # fmt: skip


def _sound() -> Inputs:
    return {"input_values": torch.randn(BATCH, 128)}


def _spectrum() -> Inputs:
    return {"input_features": torch.randn(BATCH, 8, 16)}


def _pairs() -> Inputs:
    ids = words()
    ids[:, -1] = 2
    return {"input_ids": ids, "attention_mask": mask(), "pixel_values": images()}


def _entry(model_type: str, auto: str, inputs: Any, **own: Any) -> Entry:
    return Entry(f"transformers/{model_type}", built(auto, partial(configuration, model_type, **own), inputs))


ZOO = [
    _entry("wav2vec2", "AutoModel", _sound, **_SPEECH),
    _entry("hubert", "AutoModel", _sound, **_SPEECH),
    _entry("wavlm", "AutoModel", _sound, **_SPEECH),
    _entry("unispeech", "AutoModel", _sound, **_SPEECH),
    _entry("sew", "AutoModel", _sound, squeeze_factor=2, **_SPEECH),
    _entry("data2vec-audio", "AutoModel", _sound, **_SPEECH | {"num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 3}),
    _entry("whisper", "WhisperModel", lambda: {"input_features": torch.randn(BATCH, 8, 16), "decoder_input_ids": words()},
           num_mel_bins=8, max_source_positions=8, max_target_positions=8),
    _entry("speech_to_text", "AutoModel",
           lambda: {"input_features": torch.randn(BATCH, 16, 8), "decoder_input_ids": words()},
           input_feat_per_channel=8, input_channels=1, conv_channels=16, max_source_positions=16, max_target_positions=16),
    _entry("audio-spectrogram-transformer", "AutoModelForAudioClassification",
           lambda: {"input_values": torch.randn(BATCH, 32, 16), "labels": classes()}, max_length=32, num_mel_bins=16,
           patch_size=8, frequency_stride=8, time_stride=8),
    _entry("clip", "AutoModel", _pairs, text_config=_TEXT, vision_config=_IMAGE, projection_dim=16),
    _entry("siglip", "AutoModel", _pairs, text_config=_TEXT, vision_config=_IMAGE),
    _entry("chinese_clip", "AutoModel", _pairs, text_config=_TEXT, vision_config=_IMAGE, projection_dim=16),
    _entry("altclip", "AutoModel", _pairs, text_config=_TEXT | {"project_dim": 16}, vision_config=_IMAGE, projection_dim=16),
    _entry("groupvit", "AutoModel", _pairs, text_config=_TEXT,
           vision_config=_IMAGE | {"depths": [1, 1, 0], "num_group_tokens": [4, 2, 0], "num_output_groups": [4, 2, 0]},
           projection_dim=16, projection_intermediate_dim=16),
    _entry("blip", "BlipModel", _pairs, text_config=_TEXT | {"encoder_hidden_size": 16}, vision_config=_IMAGE, projection_dim=16),
    _entry("vilt", "AutoModel", _pairs),
    _entry("visual_bert", "AutoModel", lambda: {"input_ids": words(), "attention_mask": mask(),
           "visual_embeds": torch.randn(BATCH, 4, 16)},
           visual_embedding_dim=16),
    _entry("lxmert", "AutoModel",
           lambda: {"input_ids": words(), "attention_mask": mask(),
                    "visual_feats": torch.randn(BATCH, 4, 16), "visual_pos": torch.rand(BATCH, 4, 4)},
           visual_feat_dim=16, l_layers=1, x_layers=1, r_layers=1),
    _entry("patchtst", "PatchTSTForPrediction",
           lambda: {"past_values": torch.randn(BATCH, 16, 2), "future_values": torch.randn(BATCH, 4, 2)}, num_input_channels=2,
           context_length=16, patch_length=4, patch_stride=4, prediction_length=4),
    _entry("patchtsmixer", "PatchTSMixerForPrediction",
           lambda: {"past_values": torch.randn(BATCH, 16, 2), "future_values": torch.randn(BATCH, 4, 2)}, num_input_channels=2,
           context_length=16, patch_length=4, patch_stride=4, prediction_length=4),
    _entry("time_series_transformer", "TimeSeriesTransformerModel",
           lambda: {"past_values": torch.randn(BATCH, 15), "past_time_features": torch.randn(BATCH, 15, 1),
                    "past_observed_mask": torch.ones(BATCH, 15), "future_values": torch.randn(BATCH, 4),
                    "future_time_features": torch.randn(BATCH, 4, 1)},
           prediction_length=4, context_length=8, num_time_features=1, lags_sequence=[1, 2, 7]),
    _entry("decision_transformer", "AutoModel",
           lambda: {"states": torch.randn(BATCH, 4, 3), "actions": torch.randn(BATCH, 4, 2), "rewards": torch.randn(BATCH, 4, 1),
                    "returns_to_go": torch.randn(BATCH, 4, 1), "timesteps": torch.randint(0, 8, (BATCH, 4))},
           state_dim=3, act_dim=2, max_ep_len=8, n_layer=2, n_head=2),
    _entry("perceiver", "PerceiverModel", lambda: {"inputs": torch.randn(BATCH, 8, 16)}, d_model=16, num_latents=4, d_latents=16,
           num_blocks=1, num_self_attends_per_block=1, num_self_attention_heads=2, num_cross_attention_heads=2),
]  # fmt: skip
