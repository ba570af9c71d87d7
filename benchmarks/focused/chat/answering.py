"""The example's model outside DyOrc: whole answers for the peers, and drawn questions with their answers.

Also imported in the peers' environments, so it needs only torch and safetensors.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from benchmarks.focused.chat.turn import Turn

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "chat"
sys.path.insert(0, str(EXAMPLE))

from chat_model import DRAFT, MAIN, Gpt, GptSize, weights_of  # noqa: E402 (the example's folder is no package)
from chat_texts import draw_turn  # noqa: E402
from chat_tokens import load_tokenizer  # noqa: E402
from plain_loop import answer_all  # noqa: E402

MAX_BATCH_SIZE = 32
MAX_TOKENS = 110
"""More than any answer to a drawn question has: they all end by themselves, after 3 to 90 tokens."""


def load_model(name: str = "main", size: GptSize = MAIN) -> Gpt:
    """Returns the model with its weights, for one thread."""
    torch.set_num_threads(1)
    model = Gpt(size)
    model.load_state_dict(load_file(weights_of(name)))
    return model.eval().requires_grad_(False)


def load_draft() -> Gpt:
    """Returns the smaller model that guesses."""
    return load_model("draft", DRAFT)


def prompt_of(question: bytes) -> list[int]:
    """Returns the tokens after which the model answers."""
    return load_tokenizer().prompt(question)


def answer_texts(model: Gpt, questions: list[bytes]) -> list[bytes]:
    """Answers a batch of questions; returns when the last of them is answered."""
    prompts = [prompt_of(question) for question in questions]
    return [load_tokenizer().decode(tokens) for tokens in answer_all(model, prompts, MAX_TOKENS, MAX_BATCH_SIZE)]


def draw_turns(num_turns: int, seed: int = 0) -> list[Turn]:
    """Draws different questions and answers them by hand."""
    rng = random.Random(seed)
    questions = [draw_turn(rng).question.encode() for _ in range(num_turns)]
    answers = answer_all(load_model(), [prompt_of(question) for question in questions], MAX_TOKENS, MAX_BATCH_SIZE)
    decode = load_tokenizer().decode
    return [Turn(question, tuple(tokens), decode(tokens)) for question, tokens in zip(questions, answers, strict=True)]
