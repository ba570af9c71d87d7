"""Drawn questions for `examples/chat`, and what its workflows must answer, by the plain loop beforehand."""

import itertools
import random
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

import dyorc

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat"
sys.path.insert(0, str(EXAMPLE))

from chat_cache import Cache  # noqa: E402 (the example's folder is no package)
from chat_model import MAIN, Gpt, weights_of  # noqa: E402
from chat_programs import MAX_TOKENS  # noqa: E402
from chat_texts import draw_harmful, draw_turn  # noqa: E402
from chat_tokens import END, load_tokenizer  # noqa: E402
from plain_loop import answer  # noqa: E402

WORKFLOWS = ("chat", "chat_guarded", "chat_speculative", "best_of")
TARGETS = [f"{EXAMPLE / 'workflow.py'}:{name}" for name in WORKFLOWS]
_NUM_ANSWERS = 3
_NUM_BY_HARM = 8
"""One question in so many is harmful: the guard refuses it."""
_REFUSAL = b"I do not answer that."
_ROUNDING = 1e-3
"""Scores that differ by less may change places with the size of the batch, in float32."""
_ROUNDING_OF_MEANS = 1e-4


@dataclass(frozen=True)
class Chat:
    """A question, and its right answers.

    Attributes:
        tokens: The text of each token, as `chat` sends them.
        best: What `best_of` returns.
        is_tie: Whether somewhere two tokens are equally likely within rounding.
        is_best_tie: The same for `best_of`.
    """

    question: bytes
    is_harmful: bool
    tokens: tuple[bytes, ...]
    best: bytes
    is_tie: bool
    is_best_tie: bool

    def fault_of(self, workflow: str, parts: list[bytes]) -> str:
        """Returns what is wrong with all parts of an answer; empty if nothing is."""
        match workflow:
            case "best_of":
                found, right = parts, [self.best]
            case "chat_guarded" if self.is_harmful:
                found, right = parts, [_REFUSAL]
            case "chat_speculative":  # its parts are several tokens long
                found, right = [b"".join(parts)], [b"".join(self.tokens)]
            case _:
                found, right = parts, list(self.tokens)
        return "" if found == right else f"{workflow} of {self.question!r}: {found}, expected {right}"

    def may_differ(self, workflow: str) -> bool:
        """Returns whether another answer of a workflow would be due to rounding."""
        return self.is_best_tie if workflow == "best_of" else self.is_tie


def draw_chats(num_chats: int, seed: int) -> list[Chat]:
    """Draws questions and answers them without a server, on one thread, text by text."""
    rng = random.Random(seed)
    torch.set_num_threads(1)
    model = dyorc.load_module(partial(Gpt, MAIN), weights_of("main"))
    chats: list[Chat] = []
    with torch.no_grad():
        for at in range(num_chats):
            is_harmful = at % _NUM_BY_HARM == _NUM_BY_HARM - 1
            question = (draw_harmful(rng) if is_harmful else draw_turn(rng).question).encode()
            prompt = load_tokenizer().prompt(question)
            tokens = answer(model, prompt, MAX_TOKENS)
            likely = _likely_answers(model, prompt)
            best, second, *_ = sorted(likely, key=lambda one: one.mean, reverse=True)
            is_best_tie = best.mean - second.mean < _ROUNDING_OF_MEANS or any(each.lead < _ROUNDING for each in likely)
            texts = tuple(_text([token]) for token in tokens)
            best_text = _text([token for token in best.tokens if token != END])
            chats.append(Chat(question, is_harmful, texts, best_text, likely[0].lead < _ROUNDING, is_best_tie))
    return chats


def _text(tokens: list[int]) -> bytes:
    return load_tokenizer().decode(tokens)


@dataclass
class _Likely:
    """An answer that begins with one of the likeliest tokens.

    Attributes:
        lead: By how much the likeliest token was ahead of the second, where that was least.
    """

    tokens: list[int]
    scores: list[float]
    cache: Cache
    lead: float

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)


def _likely_answers(model: Gpt, prompt: list[int]) -> list[_Likely]:
    """Goes on with each of the likeliest first tokens."""
    scores, (cache,) = model.prefill([prompt])
    begun = scores.log_softmax(dim=1).topk(_NUM_ANSWERS + 1)
    first_scores = begun.values[0].tolist()
    leads = [first - second for first, second in itertools.pairwise(first_scores)]
    answers = [
        _Likely([token], [score], cache, lead)
        for token, score, lead in zip(begun.indices[0].tolist(), first_scores, leads, strict=False)
    ]
    for _ in range(MAX_TOKENS - 1):
        growing = [each for each in answers if each.tokens[-1] != END]
        if not growing:
            break
        rows, caches = model.decode(torch.tensor([each.tokens[-1] for each in growing]), [each.cache for each in growing])
        values, indices = rows.log_softmax(dim=1).topk(2)
        for each, (first, second), token, cache in zip(growing, values.tolist(), indices[:, 0].tolist(), caches, strict=True):
            each.tokens.append(token)
            each.scores.append(first)
            each.cache = cache
            each.lead = min(each.lead, first - second)
    return answers
