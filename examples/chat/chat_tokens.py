"""Byte pairs: text as numbers, and back (Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units").

A token is a byte, or a pair of tokens that is frequent in the text that the model learns. Three more mark the turns of a chat.
"""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from chat_model import weights_of
from safetensors.torch import load_file

QUESTION, ANSWER, END = 256, 257, 258
"""A question follows; an answer follows; the answer is over."""
NUM_MARKS = 3
MAX_QUESTION = 40
"""Tokens of a question that are read: its last ones."""
_PIECE = re.compile(rb" ?[A-Za-z]+| ?[0-9]+|[^A-Za-z0-9]")
Pair = tuple[int, int]


class Tokenizer:
    """Encodes and decodes text with learned pairs.

    Attributes:
        pairs: Each pair of tokens that is a token of its own, the most frequent first.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = list(pairs)
        self._ranks = {pair: rank for rank, pair in enumerate(self.pairs)}
        self._bytes = [bytes([code]) for code in range(256)] + [b""] * NUM_MARKS
        for first, second in self.pairs:
            self._bytes.append(self._bytes[first] + self._bytes[second])
        self._pieces: dict[bytes, list[int]] = {}

    @classmethod
    def learn(cls, texts: Iterable[str], num_tokens: int) -> Self:
        """Finds the most frequent pairs of a text, one by one, until there are `num_tokens` tokens."""
        counts = Counter(piece for text in texts for piece in _PIECE.findall(text.encode()))
        pieces = [(list(piece), count) for piece, count in counts.items()]
        pairs: list[Pair] = []
        for new in range(256 + NUM_MARKS, num_tokens):
            frequencies = Counter[Pair]()
            for tokens, count in pieces:
                for pair in itertools.pairwise(tokens):
                    frequencies[pair] += count
            if not frequencies:
                break
            pair = max(frequencies, key=lambda pair: (frequencies[pair], pair))
            pairs.append(pair)
            pieces = [(_merged(tokens, pair, new), count) for tokens, count in pieces]
        return cls(pairs)

    def encode(self, text: bytes) -> list[int]:
        """Returns the tokens of a text."""
        return [token for piece in _PIECE.findall(text) for token in self._encode_piece(piece)]

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Returns the text of tokens. Marks, and tokens that were not learned, have none."""
        return b"".join(self._bytes[token] for token in tokens if token < len(self._bytes))

    def prompt(self, question: bytes) -> list[int]:
        """Returns the tokens after which a model answers."""
        return [QUESTION, *self.encode(question)[-MAX_QUESTION:], ANSWER]

    def _encode_piece(self, piece: bytes) -> list[int]:
        if (known := self._pieces.get(piece)) is not None:
            return known
        tokens = list(piece)
        while len(tokens) > 1:
            rank = min(self._ranks.get(pair, len(self.pairs)) for pair in itertools.pairwise(tokens))
            if rank == len(self.pairs):
                break
            tokens = _merged(tokens, self.pairs[rank], 256 + NUM_MARKS + rank)
        if len(self._pieces) < 10_000:  # questions hold any words
            self._pieces[piece] = tokens
        return tokens


def _merged(tokens: list[int], pair: Pair, new: int) -> list[int]:
    """Returns tokens with one in place of each such pair."""
    merged: list[int] = []
    at = 0
    while at < len(tokens):
        if tuple(tokens[at : at + 2]) == pair:
            merged.append(new)
            at += 2
        else:
            merged.append(tokens[at])
            at += 1
    return merged


@functools.cache
def load_tokenizer() -> Tokenizer:
    """Returns the tokenizer that `train.py` made."""
    return Tokenizer([(first, second) for first, second in load_file(weights_of("tokens"))["pairs"].tolist()])
