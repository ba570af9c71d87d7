"""Models with an encoder and a decoder of text, with their loss."""

from functools import partial
from typing import Any

from tests.zoo.models.configured import built, configuration
from tests.zoo.models.entry import Entry, Inputs
from tests.zoo.models.inputs import mask, words


def _inputs() -> Inputs:
    return {"input_ids": words(), "attention_mask": mask(), "decoder_input_ids": words(), "labels": words()}


def _entry(model_type: str, **own: Any) -> Entry:
    return Entry(f"transformers/{model_type}", built("AutoModelForSeq2SeqLM", partial(configuration, model_type, **own), _inputs))


ZOO = [
    _entry("t5"),
    _entry("mt5"),
    _entry("umt5"),
    _entry("longt5", local_radius=3, global_block_size=4),
    _entry("switch_transformers", num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1,
           router_jitter_noise=0.0,
           expert_capacity=16),
    _entry("bart"),
    _entry("mbart"),
    _entry("pegasus"),
    _entry("bigbird_pegasus", attention_type="original_full"),
    _entry("blenderbot"),
    _entry("blenderbot-small"),
    _entry("marian"),
    _entry("m2m_100"),
    _entry("led", attention_window=[4, 4], max_encoder_position_embeddings=32, max_decoder_position_embeddings=32),
    _entry("prophetnet", num_encoder_layers=2, num_encoder_attention_heads=2, num_decoder_attention_heads=2, ngram=2),
    _entry("plbart"),
]  # fmt: skip
