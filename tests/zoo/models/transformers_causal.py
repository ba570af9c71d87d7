"""Language models that predict the next word, with their loss."""

from functools import partial
from typing import Any

from tests.zoo.models.configured import built, configuration
from tests.zoo.models.entry import Entry, Inputs
from tests.zoo.models.inputs import mask, words


def _inputs() -> Inputs:
    ids = words()
    return {"input_ids": ids, "attention_mask": mask(), "labels": ids.clone()}


def _entry(model_type: str, auto: str = "AutoModelForCausalLM", **own: Any) -> Entry:
    return Entry(f"transformers/{model_type}", built(auto, partial(configuration, model_type, **own), _inputs))


_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
ZOO = [
    _entry("gpt2"),
    _entry("gptj", n_embd=16, n_layer=2, n_head=2, rotary_dim=4),
    _entry("gpt_neo", attention_types=[[["global", "local"], 1]], num_layers=2, num_heads=2, window_size=4),
    _entry("gpt_neox"),
    _entry("gpt_bigcode", n_embd=16, n_layer=2, n_head=2),
    _entry("codegen", n_embd=16, n_layer=2, n_head=4, rotary_dim=2),
    _entry("openai-gpt", n_embd=16, n_layer=2, n_head=2),
    _entry("opt", word_embed_proj_dim=16),
    _entry("bloom"),
    _entry("llama"),
    _entry("mistral", sliding_window=4),
    _entry("mixtral", num_local_experts=4, sliding_window=None),
    _entry("qwen2"),
    _entry("qwen3"),
    _entry("qwen2_moe", shared_expert_intermediate_size=16, **_EXPERTS),
    _entry("qwen3_moe", **_EXPERTS),
    _entry("gemma"),
    _entry("gemma2", query_pre_attn_scalar=8, sliding_window=4),
    _entry("gemma3_text", query_pre_attn_scalar=8, sliding_window=4),
    _entry("phi"),
    _entry("phi3"),
    _entry("falcon"),
    _entry("stablelm"),
    _entry("olmo"),
    _entry("olmo2"),
    _entry("olmoe", **_EXPERTS),
    _entry("granite"),
    _entry("granitemoe", num_local_experts=4, num_experts_per_tok=2),
    _entry("starcoder2"),
    _entry("cohere"),
    _entry("nemotron"),
    _entry("glm"),
    _entry("mpt", n_heads=2, n_layers=2),
    _entry("persimmon"),
    _entry("biogpt"),
    _entry("xglm", num_layers=2, attention_heads=2),
    _entry("ctrl", n_embd=16, n_layer=2, n_head=2, dff=32),
    _entry("smollm3"),
    _entry("helium"),
    _entry("deepseek_v3", n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, q_lora_rank=8, kv_lora_rank=8,
           qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8, first_k_dense_replace=1, n_shared_experts=1,
           num_key_value_heads=2, head_dim=4),
    _entry("mamba", state_size=4, time_step_rank=2),
    _entry("mamba2", state_size=4, num_heads=4, head_dim=8, n_groups=1, chunk_size=4),
    _entry("falcon_mamba", state_size=4, time_step_rank=2),
    _entry("recurrent_gemma", lru_width=16, attention_window_size=4, block_types=["recurrent", "attention"]),
    _entry("rwkv", context_length=8, attention_hidden_size=16),
    _entry("jamba", mamba_d_state=4, mamba_dt_rank=2, use_mamba_kernels=False, attn_layer_period=2, attn_layer_offset=1,
           expert_layer_period=2, expert_layer_offset=1, num_local_experts=4, num_experts_per_tok=2, num_experts=4),
]  # fmt: skip
