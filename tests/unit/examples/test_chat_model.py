"""`examples/chat`: a cache is a value, and a model with a cache says what torch's own layers say of whole texts."""

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.examples import chat_models
from tests.unit.examples.chat_models import prompts_of

LENGTHS = (1, 15, 16, 17, 40)
"""Around a block's end."""


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return chat_models.make(monkeypatch)[0]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    return chat_models.make(monkeypatch)[1]


@torch.inference_mode()
def by_torch(model: Any, tokens: list[int]) -> Tensor:
    """Returns the scores after each token, computed by torch's own layers with the same weights, without a cache."""
    width, num_heads = model.size.width, model.size.num_heads
    hidden = (model.tokens.weight[tokens] + model.places.weight[: len(tokens)])[None] * width**0.5
    for layer in model.layers:
        own = nn.TransformerEncoderLayer(
            width, num_heads, 4 * width, dropout=0, activation="gelu", batch_first=True, norm_first=True, dtype=torch.float64
        ).eval()
        own.self_attn.in_proj_weight.copy_(_for_each_head(layer.read.weight, width, num_heads))
        own.self_attn.in_proj_bias.copy_(_for_each_head(layer.read.bias, width, num_heads))
        for theirs, ours in (
            (own.self_attn.out_proj, layer.write), (own.linear1, layer.up), (own.linear2, layer.down),
            (own.norm1, layer.norm_before_attention), (own.norm2, layer.norm_before_feed),
        ):  # fmt: skip
            theirs.load_state_dict(ours.state_dict())
        hidden = own(hidden, src_mask=nn.Transformer.generate_square_subsequent_mask(len(tokens), dtype=torch.float64))
    norm = model.norm
    return (nn.functional.layer_norm(hidden, (width,), norm.weight, norm.bias) @ model.tokens.weight.T)[0]


def _for_each_head(read: Tensor, width: int, num_heads: int) -> Tensor:
    """Repeats the one key and the one value of a layer."""
    query, key, value = read.split([width, width // num_heads, width // num_heads])
    return torch.cat([query, *[key] * num_heads, *[value] * num_heads])


# The model


def test_whole_texts_have_the_scores_of_torchs_own_layers(model: Any) -> None:
    texts = prompts_of(20, 30)
    starts = torch.tensor([0] * 20 + [20] * 30)
    scores = model(torch.tensor([texts[0] + texts[1]]), starts[None])[0]
    torch.testing.assert_close(scores, torch.cat([by_torch(model, text) for text in texts]))


def test_prompts_of_different_lengths_are_read_together(model: Any) -> None:
    prompts = prompts_of(*LENGTHS)
    scores, caches = model.prefill(prompts)
    torch.testing.assert_close(scores, torch.stack([by_torch(model, prompt)[-1] for prompt in prompts]))
    assert [cache.length for cache in caches] == list(LENGTHS)


def test_decoding_token_by_token_gives_the_scores_of_the_whole_text(model: Any) -> None:
    prompts, more = prompts_of(*LENGTHS), torch.tensor(prompts_of(*[20] * len(LENGTHS)))
    _, caches = model.prefill(prompts)
    decoded: list[Tensor] = []
    for tokens in more.T:
        scores, caches = model.decode(tokens, caches)
        decoded.append(scores)
    whole = [by_torch(model, prompt + row.tolist())[-20:] for prompt, row in zip(prompts, more, strict=True)]
    torch.testing.assert_close(torch.stack(decoded, dim=1), torch.stack(whole))


@pytest.mark.parametrize("num_new", [1, 2, 5, 18])
def test_to_verify_is_to_decode_each_token(model: Any, num_new: int) -> None:
    more = torch.tensor(prompts_of(*[num_new] * len(LENGTHS)))
    _, caches = model.prefill(prompts_of(*LENGTHS))
    verified, at_once = model.verify(more, caches)
    one_by_one = caches
    for at, tokens in enumerate(more.T):
        scores, one_by_one = model.decode(tokens, one_by_one)
        torch.testing.assert_close(verified[:, at], scores)
    for both in zip(at_once, one_by_one, strict=True):
        assert_equal(*both)


def test_a_row_does_not_depend_on_the_others(model: Any) -> None:
    prompts, more = prompts_of(*LENGTHS), torch.arange(len(LENGTHS))
    _, together = model.prefill(prompts)
    scores, together = model.decode(more, together)
    for row, prompt in enumerate(prompts):
        _, alone = model.prefill([prompt])
        scores_alone, alone = model.decode(more[row : row + 1], alone)
        torch.testing.assert_close(scores[row], scores_alone[0])
        assert_equal(together[row], alone[0])


def test_a_text_that_is_too_long_is_an_error(model: Any) -> None:
    _, caches = model.prefill(prompts_of(96))
    with pytest.raises(ValueError, match="may have 96 tokens, and this one has 97"):
        model.decode(torch.tensor([1]), caches)


# The cache


def assert_equal(cache: Any, other: Any) -> None:
    assert cache.length == other.length
    torch.testing.assert_close(contents(cache), contents(other))


def contents(cache: Any) -> Tensor:
    """Returns keys and values of all tokens."""
    return torch.cat(cache.blocks, dim=1)[:, : cache.length].clone()


@pytest.mark.parametrize("length", LENGTHS)
def test_two_continuations_of_a_cache_do_not_disturb_each_other_or_it(model: Any, length: int) -> None:
    (prompt,) = prompts_of(length)
    _, (cache,) = model.prefill([prompt])
    before = contents(cache)
    texts = torch.tensor(prompts_of(10, 10))
    forks, continued = [cache, cache], list[Tensor]()
    for tokens in texts.T:
        scores, forks = model.decode(tokens, forks)
        continued.append(scores)
    assert torch.equal(contents(cache), before)
    for row, text in enumerate(texts.tolist()):
        torch.testing.assert_close(torch.stack(continued)[:, row], by_torch(model, prompt + text)[-10:])


@pytest.mark.parametrize(("length", "num_full"), [(15, 0), (16, 1), (17, 1), (40, 2)])
def test_continuations_share_all_full_blocks(model: Any, length: int, num_full: int) -> None:
    _, (cache,) = model.prefill(prompts_of(length))
    _, forks = model.decode(torch.tensor([1, 2]), [cache, cache])
    for fork in forks:
        shared = [block is theirs for block, theirs in zip(cache.blocks, fork.blocks, strict=False)]
        assert shared.count(True) == num_full
    assert forks[0].blocks[-1] is not forks[1].blocks[-1]


def test_a_blocks_memory_is_its_own(model: Any) -> None:
    """A block that was a view would keep a whole batch in memory."""
    _, caches = model.prefill(prompts_of(*LENGTHS))
    for cache in model.decode(torch.arange(len(LENGTHS)), caches)[1]:
        for block in cache.blocks:
            assert block.untyped_storage().nbytes() == block.nbytes


def test_the_bytes_of_a_cache_are_those_of_its_blocks(chat: ModuleType, model: Any) -> None:
    _, (cache,) = model.prefill(prompts_of(17))
    assert cache.num_bytes == sum(block.nbytes for block in cache.blocks) == 2 * 3 * 16 * 2 * 8 * 8
    assert chat.Cache().num_bytes == 0


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 40])
def test_a_cache_that_was_cut_goes_on_as_the_cache_of_the_shorter_text(model: Any, length: int) -> None:
    (prompt,) = prompts_of(40)
    _, (cache,) = model.prefill([prompt])
    before = contents(cache)
    kept = cache.keep(length)
    scores, (extended,) = model.decode(torch.tensor([5]), [kept])
    torch.testing.assert_close(scores[0], by_torch(model, [*prompt[:length], 5])[-1])
    assert (kept.length, extended.length) == (length, length + 1)
    assert len(kept.blocks) == -(-length // 16)
    assert torch.equal(contents(cache), before)


@pytest.mark.parametrize("length", [-1, 6])
def test_a_cache_has_no_more_tokens_than_were_read(model: Any, length: int) -> None:
    _, (cache,) = model.prefill(prompts_of(5))
    with pytest.raises(ValueError, match=f"a cache of 5 tokens has no first {length}"):
        cache.keep(length)


def test_missing_weights_are_named_with_the_command_that_makes_them(
    chat: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(chat, "WEIGHTS", tmp_path / "chat" / "weights")
    with pytest.raises(FileNotFoundError, match=r"main.safetensors is missing; make it with: python chat/train.py"):
        chat.weights_of("main")
