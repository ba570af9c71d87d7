"""MiniLM once more, with its parameters named as in its file, so that `dyorc.load_module` maps the file, or parts of it.

Attention is written out: its heads are the first dimension, along which a plan can split them.
"""

from collections.abc import Sequence

import torch
from router_minilm import NUM_CODES, NUM_LAYERS, NUM_TOKENS, WIDTH, find_model
from torch import Tensor, nn

NUM_HEADS = 12
MAX_SAMPLES = 8
WEIGHTS = find_model() / "model.safetensors"


def parts(**modules: nn.Module) -> nn.ModuleDict:
    """Returns modules by name."""
    return nn.ModuleDict(modules)


class Embeddings(nn.Module):
    """Turns tokens into vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("position_ids", torch.arange(512)[None])
        self.word_embeddings = nn.Embedding(NUM_CODES, WIDTH)
        self.position_embeddings = nn.Embedding(512, WIDTH)
        self.token_type_embeddings = nn.Embedding(2, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.position_embeddings.weight[:NUM_TOKENS] + self.token_type_embeddings.weight[0]
        return self.LayerNorm(self.word_embeddings(tokens) + places)


class Layer(nn.Module):
    """Attention, then two matrices; each is added to what it read."""

    def __init__(self) -> None:
        super().__init__()
        read = {name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value")}
        norm = lambda: nn.LayerNorm(WIDTH, eps=1e-12)  # noqa: E731
        self.attention = parts(self=parts(**read), output=parts(dense=nn.Linear(WIDTH, WIDTH), LayerNorm=norm()))
        self.intermediate = parts(dense=nn.Linear(WIDTH, 4 * WIDTH))
        self.output = parts(dense=nn.Linear(4 * WIDTH, WIDTH), LayerNorm=norm())

    def forward(self, hidden: Tensor, is_text: Tensor) -> Tensor:
        read, output = self.attention["self"], self.attention["output"]
        query, key, value = (
            read[name](hidden).unflatten(-1, (NUM_HEADS, -1)).permute(2, 0, 1, 3) for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(-1, -2) / (WIDTH // NUM_HEADS) ** 0.5
        scores = scores.masked_fill(~is_text[:, None], -1e9)
        attended = (scores.softmax(-1) @ value).permute(1, 2, 0, 3).flatten(-2)
        hidden = output["LayerNorm"](hidden + output["dense"](attended))
        inner = nn.functional.gelu(self.intermediate["dense"](hidden))
        return self.output["LayerNorm"](hidden + self.output["dense"](inner))


class Bert(nn.Module):
    """Returns the embeddings of texts, of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = parts(layer=nn.ModuleList(Layer() for _ in range(NUM_LAYERS)))
        self.pooler = parts(dense=nn.Linear(WIDTH, WIDTH))  # in the file, but of no use here

    def forward(self, tokens: Tensor) -> Tensor:
        is_text = tokens != 0
        hidden = self.embeddings(tokens)
        layers: Sequence[nn.Module] = self.encoder["layer"]  # type: ignore[assignment]
        for layer in layers:
            hidden = layer(hidden, is_text)
        weights = is_text[..., None].float()
        return nn.functional.normalize((hidden * weights).sum(dim=1) / weights.sum(dim=1), dim=1)


def make_encoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """For `dyorc plan`: the module, and the largest batch."""
    with torch.device("meta"):
        return Bert(), (torch.zeros(MAX_SAMPLES, NUM_TOKENS, dtype=torch.int64),)
