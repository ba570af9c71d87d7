"""Generation by hand, without a server: one text, several at once, and with guesses of a smaller model.

All three return the same tokens, the likeliest ones. Tests compare the served workflows with them, and the benchmark takes them
as the limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from chat_cache import Cache
from chat_model import Gpt
from chat_tokens import END
from torch import Tensor

NUM_GUESSED = 4
"""Tokens that the draft guesses in a round."""


def answer(model: Gpt, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Returns the likeliest continuation of a prompt, token by token, until the end mark (which it leaves out) or the limit."""
    limit = most_tokens(model, prompt, max_tokens)
    scores, caches = model.prefill([prompt])
    tokens: list[int] = []
    while (token := int(scores.argmax())) != END and len(tokens) < limit:
        tokens.append(token)
        scores, caches = model.decode(torch.tensor([token]), caches)
    return tokens


def most_tokens(model: Gpt, prompt: Sequence[int], max_tokens: int) -> int:
    """Returns how many tokens a prompt may get: at most `max_tokens`, and as many as the model has places for."""
    return min(max_tokens, model.size.max_length - len(prompt))


@dataclass(slots=True)
class _Row:
    """A text in the batch: the token that comes next, and the cache of all before it."""

    index: int
    token: int
    cache: Cache


def answer_all(model: Gpt, prompts: Sequence[Sequence[int]], max_tokens: int, max_batch_size: int = 32) -> list[list[int]]:
    """Continues many prompts by continuous batching: a text leaves the batch when it ends, and the next takes its place."""
    limits = [most_tokens(model, prompt, max_tokens) for prompt in prompts]
    answers: list[list[int]] = [[] for _ in prompts]
    waiting = list(enumerate(prompts))[::-1]
    rows: list[_Row] = []
    while rows or waiting:
        joining = [waiting.pop() for _ in range(min(max_batch_size - len(rows), len(waiting)))]
        if joining:
            scores, caches = model.prefill([prompt for _, prompt in joining])
            tokens = scores.argmax(dim=1).tolist()
            rows += [_Row(index, token, cache) for (index, _), token, cache in zip(joining, tokens, caches, strict=True)]
        rows = [row for row in rows if row.token != END and len(answers[row.index]) < limits[row.index]]
        if rows:
            scores, caches = model.decode(torch.tensor([row.token for row in rows]), [row.cache for row in rows])
            for row, token, cache in zip(rows, scores.argmax(dim=1).tolist(), caches, strict=True):
                answers[row.index].append(row.token)
                row.token, row.cache = token, cache
    return answers


@dataclass(frozen=True, slots=True)
class GuessedAnswer:
    """A continuation, and how well the draft guessed."""

    tokens: list[int]
    num_guessed: int
    num_right: int


def answer_guessing(
    model: Gpt, draft: Gpt, prompt: Sequence[int], max_tokens: int, num_guessed: int = NUM_GUESSED
) -> GuessedAnswer:
    """Continues a prompt by speculative decoding (Leviathan et al. 2023): a draft guesses some tokens one by one, and the model
    reads all of them at once. It keeps those that it would have said itself, and says one more."""
    end = len(prompt) + most_tokens(model, prompt, max_tokens)
    scores, (cache,) = model.prefill([prompt])
    _, (draft_cache,) = draft.prefill([prompt])
    written = [*prompt, int(scores.argmax())]
    num_right = num_read = 0
    while written[-1] != END and len(written) < end:
        draft_cache = draft_cache.keep(min(draft_cache.length, len(written) - 1))
        unread = torch.tensor([written[draft_cache.length :]])
        guessed, (draft_cache,) = guess(draft, unread, [draft_cache], min(num_guessed, end - len(written)))
        guesses = guessed[0].tolist()
        scores, (cache,) = model.verify(torch.tensor([[written[-1], *guesses]]), [cache])
        said = scores[0].argmax(dim=1).tolist()
        right = next((at for at, token in enumerate(guesses) if token != said[at]), len(guesses))
        cache = cache.keep(len(written) + right)
        written += said[: right + 1]
        num_right += right
        num_read += len(guesses)
        if END in said[: right + 1]:
            del written[written.index(END, len(prompt)) + 1 :]
    tokens = written[len(prompt) : end]
    return GuessedAnswer(tokens[:-1] if tokens[-1] == END else tokens, num_read, num_right)


def guess(draft: Gpt, tokens: Tensor, caches: Sequence[Cache], num_guessed: int) -> tuple[Tensor, list[Cache]]:
    """Lets a draft read the last tokens of each text, [rows, new], and guess what follows, token by token.

    Returns:
        The guesses, [rows, num_guessed], and caches of all tokens but the last guess.
    """
    scores, extended = draft.verify(tokens, caches)
    guesses = [scores[:, -1].argmax(dim=1)]
    while len(guesses) < num_guessed:
        scores, extended = draft.decode(guesses[-1], extended)
        guesses.append(scores.argmax(dim=1))
    return torch.stack(guesses, dim=1), extended
