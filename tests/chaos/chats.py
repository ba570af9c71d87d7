"""Drawn questions for `examples/chat`, and what its workflows must answer, by the plain loop beforehand."""

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
            best, is_best_tie = _best_of(model, prompt)
            texts = tuple(_text([token]) for token in tokens)
            is_tie = _least_lead(model, prompt, tokens) < _ROUNDING
            chats.append(Chat(question, is_harmful, texts, best, is_tie, is_best_tie))
    return chats


def _text(tokens: list[int]) -> bytes:
    return load_tokenizer().decode(tokens)


def _least_lead(model: Gpt, prompt: list[int], tokens: list[int]) -> float:
    """Returns by how much the likeliest token is ahead of the second, where that is least."""
    scores, caches = model.prefill([prompt])
    if tokens:
        more, _ = model.verify(torch.tensor([tokens]), caches)
        scores = torch.cat([scores, more[0]])
    first, second = scores.topk(2, dim=1).values.unbind(dim=1)
    return float((first - second).min())


def _best_of(model: Gpt, prompt: list[int]) -> tuple[bytes, bool]:
    """Returns the likeliest of the answers that begin with the likeliest tokens, and whether that is within rounding."""
    scores, (cache,) = model.prefill([prompt])
    begun = scores.log_softmax(dim=1).topk(_NUM_ANSWERS + 1)
    firsts = begun.values[0].diff().neg()
    found = [
        _likely_answer(model, prompt, cache, int(token), float(score))
        for token, score in zip(begun.indices[0][:_NUM_ANSWERS], begun.values[0], strict=False)
    ]
    means = sorted((mean for mean, _, _ in found), reverse=True)
    is_tie = means[0] - means[1] < _ROUNDING_OF_MEANS or float(firsts.min()) < _ROUNDING
    _, tokens, _ = max(found, key=lambda one: one[0])
    return _text([token for token in tokens if token != END]), is_tie or any(lead < _ROUNDING for _, _, lead in found)


def _likely_answer(model: Gpt, prompt: list[int], cache: Cache, token: int, score: float) -> tuple[float, list[int], float]:
    """Returns the mean score of an answer that begins with a token, its tokens, and its least lead."""
    tokens, scores = [token], [score]
    caches = [cache]
    for _ in range(MAX_TOKENS - 1):
        if tokens[-1] == END:
            break
        row, caches = model.decode(torch.tensor([tokens[-1]]), caches)
        best = row.log_softmax(dim=1).max(dim=1)
        tokens.append(int(best.indices))
        scores.append(float(best.values))
    lead = _least_lead(model, [*prompt, token], tokens[1:-1]) if len(tokens) > 1 else float("inf")
    return sum(scores) / len(scores), tokens, lead
