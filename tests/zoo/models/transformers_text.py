"""Encoders of text, with their loss for masked words where they have one."""

from functools import partial
from typing import Any

from tests.zoo.models.configured import built, configuration
from tests.zoo.models.entry import Entry, Inputs
from tests.zoo.models.inputs import mask, words


def _masked() -> Inputs:
    return {"input_ids": words(), "attention_mask": mask(), "labels": words()}


def _text() -> Inputs:
    return {"input_ids": words(), "attention_mask": mask()}


def _bare() -> Inputs:
    return {"input_ids": words()}  # padding leaves a row of canine's attention without any token: NaN


def _entry(model_type: str, auto: str = "AutoModelForMaskedLM", **own: Any) -> Entry:
    inputs = _bare if model_type == "canine" else _text if auto == "AutoModel" else _masked
    return Entry(f"transformers/{model_type}", built(auto, partial(configuration, model_type, **own), inputs))


ZOO = [
    _entry("bert"),
    _entry("roberta"),
    _entry("albert", embedding_size=16),
    _entry("distilbert", dim=16, hidden_dim=32, n_heads=2, n_layers=2),
    _entry("electra", embedding_size=16),
    _entry("deberta"),
    _entry("deberta-v2"),
    _entry("mpnet"),
    _entry("xlm-roberta"),
    _entry("convbert", embedding_size=16, conv_kernel_size=3),
    _entry("squeezebert", embedding_size=16, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1, intermediate_groups=2,
           output_groups=2),
    _entry("funnel", block_sizes=[1, 1], num_decoder_layers=1, n_head=2, d_head=8, d_inner=32),
    _entry("mobilebert", embedding_size=16, true_hidden_size=8, intra_bottleneck_size=8, num_feedforward_networks=1),
    _entry("layoutlm"),
    _entry("longformer", attention_window=[4, 4], max_position_embeddings=40),
    _entry("big_bird", attention_type="original_full"),
    _entry("fnet"),
    _entry("nystromformer", num_landmarks=8, segment_means_seq_len=8),
    _entry("roformer", embedding_size=16),
    _entry("ernie"),
    _entry("megatron-bert"),
    _entry("rembert", input_embedding_size=16, output_embedding_size=16),
    _entry("ibert"),
    _entry("esm", position_embedding_type="rotary", emb_layer_norm_before=True, token_dropout=False, mask_token_id=4),
    _entry("modernbert", global_attn_every_n_layers=2, local_attention=4),
    _entry("xlm", "AutoModel", emb_dim=16, n_layers=2, n_heads=2),
    _entry("xlnet", "AutoModel", n_head=2, n_layer=2, d_inner=32),
    _entry("canine", "AutoModel", num_hash_functions=2, num_hash_buckets=64, downsampling_rate=2, local_transformer_stride=4),
    _entry("splinter", "AutoModel"),
]  # fmt: skip
