"""The encoder and the reranker.

MiniLM makes two things of a text: one vector for the whole, by which passages are searched, and one for each token. The reranker
compares tokens (late interaction, as in ColBERT, arXiv 2004.12832): each of a question's tokens takes the nearest token of the
passage, and the mean of these similarities is the score.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1] / "router"))  # MiniLM is the other example's
from router_minilm import WIDTH, Tokenizer, load_minilm, load_words, pool  # noqa: E402

__all__ = ["Encoder", "Reranker", "Tokenizer"]
WEIGHTS = Path(__file__).parent / "weights"
QUESTION_TOKENS = 32
PASSAGE_TOKENS = 128
TOKEN_WIDTH = 64
"""Numbers that are kept of each token."""


class Encoder(nn.Module):
    """MiniLM with both its results."""

    def __init__(self) -> None:
        super().__init__()
        self.minilm = load_minilm(PASSAGE_TOKENS)
        self.words = load_words()

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Returns a vector of length 1 for each text, [batch, 384], and what `Reranker` reads of each token.

        The latter, [batch, tokens, 768], is MiniLM's last layer next to the token's own vector, which knows nothing of the others.
        """
        hidden = self.minilm.read(tokens)
        return pool(hidden, tokens), torch.cat([hidden, 10 * self.words[tokens]], dim=2)


class Reranker(nn.Module):
    """Says how well passages answer questions."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(2 * WIDTH, TOKEN_WIDTH, bias=False)
        self.weigh = nn.Linear(2 * WIDTH, 1)

    def tokens(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Returns a vector for each token, of length 1, or 0 where there is none: [batch, tokens, 64]."""
        return nn.functional.normalize(self.project(states), dim=2) * (tokens != 0)[..., None]

    def question(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Returns the same of a question, each vector as long as the token counts; together they count 1."""
        weights = self.weigh(states)[..., 0].masked_fill(tokens == 0, -1e9).softmax(dim=1)
        return self.tokens(states, tokens) * weights[..., None]


def compare(question: Tensor, passage: Tensor) -> Tensor:
    """Returns scores in -1..1, [batch], of questions [batch, 32, 64] and passages [batch, 128, 64]."""
    return (question @ passage.transpose(1, 2)).amax(dim=2).sum(dim=1)


def load_reranker() -> Reranker:
    """Returns the reranker with the weights that `train.py` made."""
    reranker = Reranker()
    reranker.load_state_dict(load("reranker"))
    return reranker.eval()


def load(name: str) -> dict[str, Tensor]:
    """Returns the tensors of a file that `train.py` made."""
    path = WEIGHTS / f"{name}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} is missing; make it with: python {path.parent.parent.name}/train.py")
    return load_file(path)
