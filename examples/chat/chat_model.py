"""A small GPT over byte pairs, in plain torch: with a cache for serving, and without one for training.

All heads of a layer share one key and one value (multi-query attention: Shazeer 2019, "Fast Transformer Decoding"), which
makes the cache four times smaller.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from chat_cache import BLOCK, Cache, CacheBatch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

WEIGHTS = Path(__file__).parent / "weights"
Attend = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class GptSize:
    """How large a model is."""

    width: int
    num_layers: int
    num_heads: int
    num_tokens: int = 512
    max_length: int = 160


MAIN = GptSize(width=256, num_layers=6, num_heads=4)
DRAFT = GptSize(width=160, num_layers=2, num_heads=5)


class Layer(nn.Module):
    """Attention, then two linear layers, each added to what came in."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.widths = [size.width, 2 * size.width // size.num_heads]
        self.norm_before_attention = nn.LayerNorm(size.width)
        self.read = nn.Linear(size.width, sum(self.widths))
        self.write = nn.Linear(size.width, size.width)
        self.norm_before_feed = nn.LayerNorm(size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def start_small(self) -> None:
        """Initialises the weights so that the tokens themselves go through all layers at first: trained so, it learns faster."""
        for last in (self.write, self.down):
            nn.init.normal_(last.weight, std=0.02)

    def forward(self, hidden: Tensor, attend: Attend) -> Tensor:
        """Maps [rows, new, width] to the same shape; `attend` gets queries, [rows, new, width], and keys with values,
        [rows, new, 2 * head size]."""
        query, key_value = self.read(self.norm_before_attention(hidden)).split(self.widths, dim=2)
        hidden = hidden + self.write(attend(query, key_value))
        return hidden + self.down(gelu(self.up(self.norm_before_feed(hidden))))


class Gpt(nn.Module):
    """Scores the token that follows each token of a text."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.size = size
        self.tokens = nn.Embedding(size.num_tokens, size.width)
        self.places = nn.Embedding(size.max_length, size.width)
        layers = [Layer(size) for _ in range(size.num_layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(size.width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=size.width**-0.5)
        for layer in layers:
            layer.start_small()

    def forward(self, tokens: Tensor, starts: Tensor) -> Tensor:
        """Scores what follows each token of whole texts, of which several may share a row.

        Args:
            tokens: Of shape [rows, length].
            starts: For each token where in its row its text starts, of the same shape.

        Returns:
            Scores of shape [rows, length, tokens].
        """
        at = torch.arange(tokens.shape[1])
        is_seen = (starts[:, :, None] == starts[:, None]) & (at <= at[:, None])
        hidden = self._embed(tokens, at - starts)
        for layer in self.layers:
            hidden = layer(hidden, partial(_attend, is_seen[:, None]))
        return self.scores(hidden)

    def _embed(self, tokens: Tensor, places: Tensor) -> Tensor:
        return (self.tokens(tokens) + self.places(places)) * self.size.width**0.5

    def scores(self, hidden: Tensor) -> Tensor:
        """Returns a score for each token of the vocabulary."""
        return self.norm(hidden) @ self.tokens.weight.T

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, list[Cache]]:
        """Reads prompts of different lengths together.

        Returns:
            The scores after the last token of each, [rows, tokens], and a cache for each.
        """
        counts = [len(prompt) for prompt in prompts]
        tokens = torch.zeros(len(prompts), max(counts), dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = torch.tensor(prompt)
        hidden, caches = self._extend(tokens, [Cache()] * len(prompts), counts)
        last = torch.tensor(counts) - 1
        return self.scores(hidden[torch.arange(len(prompts)), last]), caches

    @torch.inference_mode()
    def decode(self, tokens: Tensor, caches: Sequence[Cache]) -> tuple[Tensor, list[Cache]]:
        """Reads one more token of each text, [rows]; returns the scores after it, [rows, tokens], and new caches."""
        hidden, extended = self._extend(tokens[:, None], caches, [1] * len(caches))
        return self.scores(hidden[:, 0]), extended

    @torch.inference_mode()
    def verify(self, tokens: Tensor, caches: Sequence[Cache]) -> tuple[Tensor, list[Cache]]:
        """Reads several more tokens of each text, [rows, new]; returns the scores after each, [rows, new, tokens], and new
        caches. `Cache.keep` drops again what was guessed wrongly."""
        hidden, extended = self._extend(tokens, caches, [tokens.shape[1]] * len(caches))
        return self.scores(hidden), extended

    def _extend(self, tokens: Tensor, caches: Sequence[Cache], counts: Sequence[int]) -> tuple[Tensor, list[Cache]]:
        """Runs the layers on new tokens, [rows, new], of which `counts` are real in each row."""
        longest = max(cache.length + count for cache, count in zip(caches, counts, strict=True))
        if longest > self.size.max_length:
            raise ValueError(f"a text may have {self.size.max_length} tokens, and this one has {longest}")
        batch = CacheBatch(caches, tokens.shape[1], self._empty)
        # A row with fewer new tokens than others may run over the last place; what it has there is not kept.
        hidden = self._embed(tokens, batch.positions.clamp(max=self.size.max_length - 1))
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, partial(batch.attend, index))
        return hidden, batch.with_new(counts)

    @property
    def _empty(self) -> Tensor:
        size = self.size
        return self.norm.weight.new_zeros(size.num_layers, BLOCK, 2 * size.width // size.num_heads)


def _attend(is_seen: Tensor, query: Tensor, key_value: Tensor) -> Tensor:
    """Lets each token of whole texts look at those that it may see."""
    key, value = key_value[:, None].chunk(2, dim=3)
    queries = query.unflatten(2, (-1, key.shape[3])).transpose(1, 2)
    shape = (-1, queries.shape[1], -1, -1)
    seen = scaled_dot_product_attention(queries, key.expand(shape), value.expand(shape), attn_mask=is_seen)
    return seen.transpose(1, 2).flatten(2)


def weights_of(name: str) -> Path:
    """Returns the file that `train.py` wrote: "main", "draft", "guard" or "tokens"."""
    path = WEIGHTS / f"{name}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} is missing; make it with: python {path.parent.parent.name}/train.py")
    return path
