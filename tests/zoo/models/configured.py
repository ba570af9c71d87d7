"""Builds models of transformers from their configurations with few layers, narrow ones, and nothing random."""

from collections.abc import Callable
from typing import Any

from torch import nn

from tests.zoo.models.entry import Build, Inputs
from tests.zoo.models.inputs import PIXELS, WORDS
from tests.zoo.models.operators import define_missing_operators

_SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "d_model": 16,
    "num_hidden_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "d_kv": 8,
    "intermediate_size": 32,
    "d_ff": 32,
    "ffn_dim": 32,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "moe_intermediate_size": 16,
    "vocab_size": WORDS,
    "max_position_embeddings": 32,
    "image_size": PIXELS,
    "patch_size": 8,
    "num_labels": 10,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
}
"""What is set of a configuration where it has it."""


def configuration(model_type: str, **own: Any) -> Any:
    """Returns a small configuration of transformers without dropout.

    Args:
        model_type: Its name there.
        own: What this kind of model needs besides.
    """
    from transformers import AutoConfig

    usual = AutoConfig.for_model(model_type)
    names = {*usual.to_dict(), *type(usual).attribute_map, "num_labels"}
    sizes = {
        name: value
        for name, value in _SIZES.items()
        if name in names and not isinstance(getattr(usual, name, None), list | tuple)
    }
    config = without_dropout(AutoConfig.for_model(model_type, **sizes | own))
    config._experts_implementation = "batched_mm"  # the usual one multiplies no float64
    return config


def without_dropout(config: Any) -> Any:
    """Sets every probability of dropping something to zero, also in the configurations inside."""
    for name, value in list(vars(config).items()):
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
        elif hasattr(value, "to_dict"):
            without_dropout(value)
    return config


def built(auto: str, config: Callable[[], Any], inputs: Callable[[], Inputs]) -> Build:
    """Returns what builds a model.

    Args:
        auto: The name of a class in transformers: an `Auto` class, or a model's own.
        config: Returns its configuration.
        inputs: Returns its inputs.
    """

    def build() -> tuple[nn.Module, Inputs]:
        define_missing_operators()  # transformers imports torchvision, if it is there
        import transformers

        cls = getattr(transformers, auto)
        module = cls.from_config(config()) if auto.startswith("Auto") else cls(config())
        return module.train(), inputs()

    return build
