"""MiniLM as the encoder, and a reranker that needs no training.

MiniLM makes two things of a text: one vector for the whole, by which passages are searched, and one for each token. The reranker
compares tokens (late interaction, as in ColBERT, arXiv 2004.12832): each of a question's tokens takes the nearest token of the
passage, and the mean of these similarities says how well the passage answers.
"""

import sys
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1] / "router"))  # MiniLM belongs to that example
from router_minilm import WIDTH, Tokenizer, load_minilm, pool

__all__ = ["INDEX", "PASSAGE_TOKENS", "QUESTION_TOKENS", "WIDTH", "Encoder", "Tokenizer", "compare", "load_index"]
INDEX = Path(__file__).parent / "weights" / "index.safetensors"
QUESTION_TOKENS = 32
PASSAGE_TOKENS = 128
"""Longer texts are cut."""
_START, _END = 101, 102
"""The tokens at both ends of a text, which say nothing."""


class Encoder(nn.Module):
    """MiniLM with both its results."""

    def __init__(self) -> None:
        super().__init__()
        self.minilm = load_minilm(PASSAGE_TOKENS)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Returns vectors of length 1 of texts, [batch, 384], and of tokens, [batch, tokens, 384], 0 where there is none."""
        hidden = self.minilm.read(tokens)
        is_word = (tokens != 0) & (tokens != _START) & (tokens != _END)
        return pool(hidden, tokens), nn.functional.normalize(hidden, dim=2) * is_word[..., None]


def compare(question: Tensor, passage: Tensor) -> Tensor:
    """Returns similarities in -1..1, [batch], of the tokens of questions [batch, 32, 384] and passages [batch, 128, 384]."""
    nearest = (question @ passage.transpose(1, 2)).amax(dim=2)
    num_words = question.any(dim=2).sum(dim=1).clamp(min=1)
    return nearest.sum(dim=1) / num_words


def load_index(digest: str) -> dict[str, Tensor]:
    """Maps what `index.py` made: `texts` [passages, 384] of FP32, and `tokens` [passages, 128, 384] of FP16.

    Raises:
        FileNotFoundError: If it was not made, or of other passages than those with this digest.
    """
    if INDEX.is_file():
        index = load_file(INDEX)
        if bytes(index["digest"].tolist()).decode() == digest:
            return index
    raise FileNotFoundError(f"{INDEX.name} of these passages is missing; make it with: python retrieval/index.py")
