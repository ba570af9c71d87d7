"""The programs of the chat: what reads, decodes and verifies with one model shares a process, its weights and its caches."""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from chat_cache import Cache
from chat_guard import Guard
from chat_model import DRAFT, MAIN, Gpt, GptSize, weights_of
from chat_tokens import END, MAX_QUESTION, load_tokenizer
from jaxtyping import Bool, Float, Int
from plain_loop import NUM_GUESSED, guess
from torch import Tensor

import dyorc
from dyorc import Bytes

NUM_FIRST = 4
"""How many tokens `prefill` offers to begin an answer with."""
MAX_TOKENS = MAIN.max_length - MAX_QUESTION - 2 - NUM_GUESSED
"""Tokens of an answer: there is room for the marks and for guesses behind it."""


@functools.cache
def load(name: str, size: GptSize) -> Gpt:
    """Returns a model; all programs of a process share it."""
    torch.set_num_threads(1)  # the nets are too small to be split over threads
    return dyorc.load_module(functools.partial(Gpt, size), weights_of(name))


def prompts_of(questions: np.ndarray) -> list[list[int]]:
    """Returns the tokens after which a model answers each question."""
    return [load_tokenizer().prompt(question) for question in questions]


def texts_of(answers: list[list[int]]) -> np.ndarray:
    """Returns the text of each list of tokens."""
    texts = np.empty(len(answers), object)
    texts[:] = [load_tokenizer().decode(tokens) for tokens in answers]
    return texts


@dataclass
class First:
    """How an answer may begin: the likeliest tokens first, their texts and the logarithms of their probabilities."""

    tokens: Int[Tensor, "batch 4"]
    texts: Bytes[np.ndarray, "batch 4"]
    scores: Float[Tensor, "batch 4"]
    cache: dyorc.Resident[Cache]


@dyorc.program(group="lm")
class Prefill:
    """Reads questions."""

    def __init__(self) -> None:
        self.model = load("main", MAIN)

    def __call__(self, question: Bytes[np.ndarray, " batch"]) -> First:
        scores, caches = self.model.prefill(prompts_of(question))
        best = scores.log_softmax(dim=1).topk(NUM_FIRST)
        texts = texts_of([[token] for token in best.indices.flatten().tolist()]).reshape(-1, NUM_FIRST)
        return First(best.indices, texts, best.values.float(), caches)

    def resident_bytes(self, cache: Cache) -> int:
        return cache.num_bytes


Next = tuple[Int[Tensor, " batch"], Bytes[np.ndarray, " batch"], Float[Tensor, " batch"], dyorc.Resident[Cache]]
"""The likeliest next token, its text, the logarithm of its probability, and the cache before it."""


@dyorc.program(group="lm")
class Decode:
    """Reads one more token of each text."""

    def __init__(self) -> None:
        self.model = load("main", MAIN)

    def __call__(self, token: Int[Tensor, " batch"], cache: dyorc.Resident[Cache]) -> Next:
        scores, caches = self.model.decode(token, cache)
        best = scores.log_softmax(dim=1).max(dim=1)
        texts = texts_of([[token] for token in best.indices.tolist()])
        return best.indices, texts, best.values.float(), caches

    def resident_bytes(self, cache: Cache) -> int:
        return cache.num_bytes

    def rebuild(self, calls: list[dyorc.ChainCall]) -> Cache:
        """Makes a cache that was lost, by one pass over question and tokens in place of one for each token."""
        question, *tokens = [call.inputs[0].item() for call in calls]
        _, (cache,) = self.model.prefill([[*load_tokenizer().prompt(question), *tokens]])
        return cache


@dataclass
class Verified:
    """What the model said of guesses: those that are right, and one token more.

    Attributes:
        last: The last two tokens of the text.
        num_right: How many guesses were right.
        room: How many tokens the answer may still have.
        text: What the answer grew by.
        is_over: Whether it ended.
    """

    last: Int[Tensor, "batch 2"]
    num_right: Int[Tensor, " batch"]
    room: Int[Tensor, " batch"]
    text: Bytes[np.ndarray, " batch"]
    is_over: Bool[Tensor, " batch"]
    cache: dyorc.Resident[Cache]


@dyorc.program(group="lm")
class Verify:
    """Reads the last token of each text, and guesses of what follows it."""

    def __init__(self) -> None:
        self.model = load("main", MAIN)

    def __call__(
        self,
        token: Int[Tensor, " batch"],
        guesses: Int[Tensor, "batch 4"],
        room: Int[Tensor, " batch"],
        cache: dyorc.Resident[Cache],
    ) -> Verified:
        read = torch.cat([token[:, None], guesses], dim=1)
        scores, caches = self.model.verify(read, cache)
        said = scores.argmax(dim=2)
        num_right = (said[:, :-1] == guesses).cumprod(dim=1).sum(dim=1)
        # A right guess is what was said. So after the text up to the last right guess comes what was said after that one.
        ends = torch.stack([read.gather(1, num_right[:, None]), said.gather(1, num_right[:, None])], dim=1)[..., 0]
        new = [tokens[:most] for tokens, most in zip(said.tolist(), (num_right + 1).minimum(room).tolist(), strict=True)]
        is_over = torch.tensor([END in tokens for tokens in new]) | (room <= num_right + 1)
        return Verified(
            last=ends,
            num_right=num_right,
            room=room - num_right - 1,
            text=texts_of([tokens[: tokens.index(END)] if END in tokens else tokens for tokens in new]),
            is_over=is_over,
            cache=without_wrong(caches, num_right),
        )

    def resident_bytes(self, cache: Cache) -> int:
        return cache.num_bytes


Guessed = tuple[Int[Tensor, "batch 4"], dyorc.Resident[Cache]]
"""What a draft guesses to follow a text, and its cache."""


@dyorc.program(group="draft")
class BeginDraft:
    """Reads questions and the first token of each answer, and guesses what follows."""

    def __init__(self) -> None:
        self.model = load("draft", DRAFT)

    def __call__(self, question: Bytes[np.ndarray, " batch"], token: Int[Tensor, " batch"]) -> Guessed:
        _, caches = self.model.prefill(prompts_of(question))
        return guess(self.model, token[:, None], caches, NUM_GUESSED)

    def resident_bytes(self, cache: Cache) -> int:
        return cache.num_bytes


@dyorc.program(group="draft")
class Draft:
    """Guesses on, after the model has said how many guesses were right, and what came then."""

    def __init__(self) -> None:
        self.model = load("draft", DRAFT)

    def __call__(self, last: Int[Tensor, "batch 2"], num_right: Int[Tensor, " batch"], cache: dyorc.Resident[Cache]) -> Guessed:
        return guess(self.model, last, without_wrong(cache, num_right), NUM_GUESSED)

    def resident_bytes(self, cache: Cache) -> int:
        return cache.num_bytes


def without_wrong(caches: list[Cache], num_right: Tensor) -> list[Cache]:
    """Returns caches without the guesses that are not right."""
    kept = (num_right - NUM_GUESSED).tolist()
    return [cache.keep(cache.length + more) for cache, more in zip(caches, kept, strict=True)]


@dyorc.program
class Guarding:
    """Scores how likely a question asks for something harmful."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.net = dyorc.load_module(Guard, weights_of("guard"))

    def __call__(self, question: Bytes[np.ndarray, " batch"]) -> Float[Tensor, " batch"]:
        return self.net([load_tokenizer().encode(text) for text in question])
