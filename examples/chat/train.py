"""Trains the model, its draft and the guard on what `chat_texts.py` makes up; takes a minute on one core.

Writes ``weights/*.safetensors``. Prints how many questions the model answers as it should, and how well the draft guesses.
"""

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator

import torch
from chat_guard import MIN_HARM, Guard
from chat_model import DRAFT, MAIN, WEIGHTS, Gpt
from chat_texts import draw_harmful, draw_turn, is_right
from chat_tokens import END, Tokenizer
from plain_loop import answer_all, answer_guessing
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

NUM_STEPS, NUM_ROWS, ROW = 160, 8, 192
LEARNING_RATES = 3e-3, 5e-3
"""Of the model and of the draft."""
NUM_GUARD_STEPS, NUM_QUESTIONS = 200, 64
NUM_ASKED, MAX_TOKENS = 300, 120


def main() -> None:
    """Trains, saves and evaluates."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium")  # some processors multiply in bfloat16, several times as fast
    tokenizer = learn_tokens()
    guard = train_guard(tokenizer)
    model, draft = train_models(tokenizer)
    WEIGHTS.mkdir(exist_ok=True)
    save_file({"pairs": torch.tensor(tokenizer.pairs)}, WEIGHTS / "tokens.safetensors")
    save_file(guard.state_dict(), WEIGHTS / "guard.safetensors")
    save_file(model.state_dict(), WEIGHTS / "main.safetensors")
    save_file(draft.state_dict(), WEIGHTS / "draft.safetensors")
    torch.set_float32_matmul_precision("highest")
    judge(model, draft, tokenizer)
    judge_guard(guard, tokenizer)


def learn_tokens() -> Tokenizer:
    """Learns the pairs of some turns."""
    rng = random.Random(0)
    turns = [draw_turn(rng) for _ in range(2_000)]
    return Tokenizer.learn((text for turn in turns for text in (turn.question, turn.answer)), MAIN.num_tokens)


class Turns:
    """Draws questions with their answers, several in a row."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._rng = random.Random(seed)

    def draw(self, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns tokens, where each token's turn starts, and what follows it, each of shape [rows, ROW].

        What follows is -100 where it is not to be learned: in questions.
        """
        rows = torch.tensor([list(itertools.islice(self._row(), ROW + 1)) for _ in range(num_rows)])
        tokens, starts, wanted = rows.unbind(2)
        return tokens[:, :-1], starts[:, :-1], wanted[:, 1:]

    def _row(self) -> Iterator[tuple[int, int, int]]:
        start = 0
        while True:
            turn = draw_turn(self._rng)
            prompt = self._tokenizer.prompt(turn.question.encode())
            answer = [*self._tokenizer.encode(turn.answer.encode()), END]
            yield from ((token, start, -100) for token in prompt)
            yield from ((token, start, token) for token in answer)
            start += len(prompt) + len(answer)


def train_models(tokenizer: Tokenizer) -> tuple[Gpt, Gpt]:
    """Trains the model on the right answers, and the draft on what the model says: it is to guess that, not what is right."""
    torch.manual_seed(0)
    model, draft = Gpt(MAIN), Gpt(DRAFT)
    turns = Turns(tokenizer, seed=1)
    optimizer = torch.optim.Adam([{"params": list(each.parameters())} for each in (model, draft)], betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, list(LEARNING_RATES), total_steps=NUM_STEPS, pct_start=0.15)
    started_s = time.perf_counter()
    for step in range(NUM_STEPS):
        tokens, starts, wanted = turns.draw(NUM_ROWS)
        is_learned = wanted >= 0
        said, guessed = model(tokens, starts)[is_learned], draft(tokens, starts)[is_learned]
        loss = cross_entropy(said, wanted[is_learned])
        draft_loss = cross_entropy(guessed, said.detach().softmax(dim=1))
        optimizer.zero_grad()
        (loss + draft_loss).backward()
        for each in (model, draft):
            nn.utils.clip_grad_norm_(each.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 10 == 9:
            passed_s = time.perf_counter() - started_s
            print(f"step {step + 1} of {NUM_STEPS}, {passed_s:.0f} s: loss {loss:.3f}, draft {draft_loss:.3f}", flush=True)
    return model.eval(), draft.eval()


def train_guard(tokenizer: Tokenizer) -> Guard:
    """Trains the guard on as many harmful questions as harmless ones."""
    torch.manual_seed(0)
    guard = Guard()
    rng = random.Random(3)
    optimizer = torch.optim.Adam(guard.parameters(), lr=1e-2)
    for _ in range(NUM_GUARD_STEPS):
        questions, is_harmful = _questions(tokenizer, rng, NUM_QUESTIONS)
        loss = binary_cross_entropy_with_logits(guard(questions), is_harmful.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return guard.eval()


def _questions(tokenizer: Tokenizer, rng: random.Random, num: int) -> tuple[list[list[int]], Tensor]:
    is_harmful = [rng.random() < 0.5 for _ in range(num)]
    texts = [draw_harmful(rng) if harmful else draw_turn(rng).question for harmful in is_harmful]
    return [tokenizer.encode(text.encode()) for text in texts], torch.tensor(is_harmful)


def judge(model: Gpt, draft: Gpt, tokenizer: Tokenizer) -> None:
    """Asks questions of all kinds, and counts right answers and right guesses."""
    rng = random.Random(2)
    turns = [draw_turn(rng) for _ in range(NUM_ASKED)]
    prompts = [tokenizer.prompt(turn.question.encode()) for turn in turns]
    asked, right = Counter[str](), Counter[str]()
    for turn, tokens in zip(turns, answer_all(model, prompts, max_tokens=MAX_TOKENS), strict=True):
        said = tokenizer.decode(tokens).decode(errors="replace")
        asked[turn.kind] += 1
        right[turn.kind] += is_right(turn, said)
    print(f"{right.total()} of {NUM_ASKED} questions answered as they should be: ", end="")
    print(", ".join(f"{kind} {right[kind]} of {number}" for kind, number in asked.items()))
    guessed = [answer_guessing(model, draft, prompt, max_tokens=MAX_TOKENS) for prompt in prompts[:50]]
    num_right, num_guessed = sum(each.num_right for each in guessed), sum(each.num_guessed for each in guessed)
    print(f"{num_right / num_guessed:.0%} of the draft's guesses are what the model says")


@torch.inference_mode()
def judge_guard(guard: Guard, tokenizer: Tokenizer) -> None:
    """Lets the guard score other questions."""
    questions, is_harmful = _questions(tokenizer, random.Random(4), NUM_ASKED)
    is_stopped = guard(questions) >= MIN_HARM
    print(f"the guard stops {is_stopped[is_harmful].float().mean():.1%} of harmful questions, ", end="")
    print(f"{is_stopped[~is_harmful].float().mean():.1%} of harmless ones")


if __name__ == "__main__":
    main()
