"""`examples/chat`: batches and guesses change no token of what one text alone gets; text survives its tokens."""

import random
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.examples import chat_models
from tests.unit.examples.chat_models import prompts_of
from tests.unit.examples.modules import load_module

MAX_TOKENS = 30
LENGTHS = (1, 3, 8, 15, 16, 17, 20, 33, 50, 64, 80, 81, 82, 83)
END = 258


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_module("chat", "plain_loop", monkeypatch)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a model that says the end mark now and then, so that texts end after different numbers of tokens."""
    _, model = chat_models.make(monkeypatch)
    with torch.no_grad():
        model.tokens.weight[END] *= 3
    return model


@torch.inference_mode()
def by_whole_texts(model: Any, prompt: list[int], max_tokens: int) -> list[int]:
    """Returns the likeliest continuation without a cache: the whole text is read again for each token."""
    text = list(prompt)
    while len(text) < min(len(prompt) + max_tokens, model.size.max_length):
        token = int(model(torch.tensor([text]), torch.zeros(1, len(text), dtype=torch.int64))[0, -1].argmax())
        if token == END:
            break
        text.append(token)
    return text[len(prompt) :]


@pytest.fixture
def wanted(model: Any) -> list[list[int]]:
    answers = [by_whole_texts(model, prompt, MAX_TOKENS) for prompt in prompts_of(*LENGTHS)]
    lengths = {len(answer) for answer in answers}
    assert len(lengths) > 3, "all answers are alike"
    assert MAX_TOKENS in lengths, "no answer reaches the limit"
    assert lengths & {96 - length for length in LENGTHS[-4:]}, "no answer reaches the model's last place"
    return answers


def test_one_text(loop: ModuleType, model: Any, wanted: list[list[int]]) -> None:
    assert [loop.answer(model, prompt, MAX_TOKENS) for prompt in prompts_of(*LENGTHS)] == wanted


@pytest.mark.parametrize("max_batch_size", [1, 3, 32])
def test_texts_that_join_and_leave_a_batch(loop: ModuleType, model: Any, wanted: list[list[int]], max_batch_size: int) -> None:
    assert loop.answer_all(model, prompts_of(*LENGTHS), MAX_TOKENS, max_batch_size) == wanted


@pytest.mark.parametrize("num_guessed", [1, 4, 7])
def test_a_draft_that_knows_nothing_changes_no_token(
    loop: ModuleType, model: Any, wanted: list[list[int]], num_guessed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, draft = chat_models.make(monkeypatch, seed=1, width=16, num_layers=1, num_heads=2)
    guessed = [loop.answer_guessing(model, draft, prompt, MAX_TOKENS, num_guessed) for prompt in prompts_of(*LENGTHS)]
    assert [each.tokens for each in guessed] == wanted
    assert any(each.num_right < each.num_guessed for each in guessed), "no guess is wrong"


@pytest.mark.parametrize("num_guessed", [1, 4, 7])
def test_the_model_as_its_own_draft_is_always_right(
    loop: ModuleType, model: Any, wanted: list[list[int]], num_guessed: int
) -> None:
    guessed = [loop.answer_guessing(model, model, prompt, MAX_TOKENS, num_guessed) for prompt in prompts_of(*LENGTHS)]
    assert [each.tokens for each in guessed] == wanted
    assert all(each.num_right == each.num_guessed for each in guessed)


# Tokens

TEXTS = ["the cat and the dog", "the hat, the cat; the end", "a 12 and 1212"]


@given(st.binary())
def test_text_survives_its_tokens(text: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tokenizer = load_module("chat", "chat_tokens", patch).Tokenizer.learn(TEXTS, 280)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_frequent_words_are_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_module("chat", "chat_tokens", monkeypatch).Tokenizer.learn(TEXTS, 280)
    assert len(tokenizer.encode(b" the cat")) == 2
    assert tokenizer.encode(b"xyz") == list(b"xyz")


# Texts


def test_a_question_has_one_right_answer_and_stories_have_one_for_each_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = load_module("chat", "chat_texts", monkeypatch)
    rng = random.Random(0)
    answers: dict[str, set[str]] = {}
    for _ in range(20_000):
        turn = texts.draw_turn(rng)
        assert texts.is_right(turn, turn.answer)
        assert not texts.is_right(turn, turn.answer[:-1])
        answers.setdefault(turn.question, set()).add(turn.answer)
    numbers = {question: len(right) for question, right in answers.items()}
    assert len(numbers) > 350
    assert {number for question, number in numbers.items() if "story" not in question} == {1}
    assert {number for question, number in numbers.items() if "story" in question} == {len(texts.STORIES)}
