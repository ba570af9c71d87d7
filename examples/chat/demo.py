"""Starts a server for the chat, asks it questions over HTTP, shows answers as they come, and says how many tokens it makes.

    python examples/chat/demo.py [--in-process]

Its options are those of `dyorc serve`.
"""

import json
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import torch
from chat_model import DRAFT, MAIN, Gpt, weights_of
from chat_programs import MAX_TOKENS
from chat_texts import draw_harmful, draw_turn
from chat_tokens import load_tokenizer
from plain_loop import answer, answer_all, answer_guessing

import dyorc
from dyorc.testing import serving

NUM_QUESTIONS, NUM_ALONE = 64, 16
NUM_CLIENTS = 32
NUM_ROUNDS = 3
WORKFLOWS = ("chat", "chat_guarded", "chat_speculative", "best_of")
OPENAI = "village"
"""`chat` for clients of OpenAI's API."""


def ask(client: dyorc.Client, workflow: str, question: str) -> str:
    """Returns the answer, however many parts it comes in."""
    if workflow == "best_of":
        return client.infer(workflow, question=question.encode()).item().decode(errors="replace")
    return b"".join(part.item() for part in client.stream(workflow, question=question.encode())).decode(errors="replace")


def main() -> None:
    """Runs the demonstration."""
    rng = random.Random(5)
    questions = [draw_turn(rng).question for _ in range(NUM_QUESTIONS)]
    wanted = _show_plain_loop(questions)
    folder = Path(__file__).parent
    targets = [f"{folder / 'workflow.py'}:{name}" for name in (*WORKFLOWS, OPENAI)]
    with (
        serving(*targets, *sys.argv[1:], show=lambda line: print(f"  server | {line}", flush=True)) as server,
        dyorc.Client(server.url) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as pool,
    ):
        _show_parts(client, "chat", questions[0])
        _show_parts(client, "chat_speculative", questions[0])
        _show_curl(server.url, questions[0])
        harmful = draw_harmful(rng)
        print(f"\n{harmful}\n{ask(client, 'chat_guarded', harmful)}\n")
        _show_rates(client, pool, questions, wanted)


def _show_rates(client: dyorc.Client, pool: ThreadPoolExecutor, questions: list[str], wanted: list[str]) -> None:
    """Shows how many tokens each workflow makes for one client and for many, and how many answers are the plain loop's.

    The server needs some requests of each kind until it is as fast as it will be, and other work on the machine comes and goes.
    So all workflows answer the same questions by turns, each time in another order, and the first round does not count.
    """
    alone: dict[str, list[float]] = {workflow: [] for workflow in WORKFLOWS}
    together: dict[str, list[float]] = {workflow: [] for workflow in WORKFLOWS}
    num_equal = dict.fromkeys(WORKFLOWS, 0)
    for number in range(NUM_ROUNDS + 1):
        first = number % len(WORKFLOWS)
        for workflow in WORKFLOWS[first:] + WORKFLOWS[:first]:
            one = partial(ask, client, workflow)
            _, rate = timed(lambda one=one: [one(question) for question in questions[:NUM_ALONE]])
            answers, rate_of_all = timed(lambda one=one: list(pool.map(one, questions)))
            if number:
                alone[workflow].append(rate)
                together[workflow].append(rate_of_all)
                num_equal[workflow] += _num_equal(answers, wanted)
    print(f"Tokens per second, medians of {NUM_ROUNDS} rounds with the least and the most:")
    for workflow in WORKFLOWS:
        print(f"{workflow}: {_summary(alone[workflow])} with one client, ", end="")
        print(f"{_summary(together[workflow])} with {NUM_CLIENTS} clients; ", end="")
        print(f"{num_equal[workflow]} of {NUM_ROUNDS * len(wanted)} answers are those of the plain loop")


def _summary(rates: list[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def _show_plain_loop(questions: list[str]) -> list[str]:
    """Answers without a server, on one thread. Returns the answers."""
    torch.set_num_threads(1)
    model = dyorc.load_module(partial(Gpt, MAIN), weights_of("main"))
    draft = dyorc.load_module(partial(Gpt, DRAFT), weights_of("draft"))
    tokenizer = load_tokenizer()
    prompts = [tokenizer.prompt(question.encode()) for question in questions]

    def texts(answers: list[list[int]]) -> list[str]:
        return [tokenizer.decode(tokens).decode(errors="replace") for tokens in answers]

    for prompt in prompts[:NUM_ALONE]:  # warm-up
        answer_guessing(model, draft, prompt, MAX_TOKENS)
    answer_all(model, prompts, MAX_TOKENS, NUM_CLIENTS)
    answers, rate = timed(lambda: texts([answer(model, prompt, MAX_TOKENS) for prompt in prompts]))
    guessed, rate_guessing = timed(
        lambda: texts([answer_guessing(model, draft, prompt, MAX_TOKENS).tokens for prompt in prompts])
    )
    together, rate_of_all = timed(lambda: texts(answer_all(model, prompts, MAX_TOKENS, NUM_CLIENTS)))
    print(f"by hand: {rate:,.0f} tokens/s one text at a time; ", end="")
    print(f"with guesses {rate_guessing:,.0f}, {_num_equal(guessed, answers)} of {len(answers)} answers are equal; ", end="")
    print(f"{NUM_CLIENTS} texts at a time {rate_of_all:,.0f}, {_num_equal(together, answers)} are equal")
    return answers


def timed(get_answers: Callable[[], list[str]]) -> tuple[list[str], float]:
    """Returns answers, and how many tokens of them came in a second."""
    started_s = time.perf_counter()
    answers = get_answers()
    elapsed_s = time.perf_counter() - started_s
    return answers, sum(len(load_tokenizer().encode(each.encode())) for each in answers) / elapsed_s


def _num_equal(answers: list[str], others: list[str]) -> int:
    return sum(map(str.__eq__, answers, others))


def _show_parts(client: dyorc.Client, workflow: str, question: str) -> None:
    """Shows an answer, part by part as it arrives."""
    print(f"\n{question} ({workflow})")
    for part in client.stream(workflow, question=question.encode()):
        print(part.item().decode(errors="replace"), end="|", flush=True)
    print()


def _show_curl(url: str, question: str) -> None:
    """Shows how curl asks by OpenAI's API, and what it gets."""
    body = json.dumps({"model": OPENAI, "messages": [{"role": "user", "content": question}]})
    print(f"\n$ curl {url}/v1/chat/completions -d {shlex.quote(body)}")
    with urlopen(f"{url}/v1/chat/completions", data=body.encode()) as answer:
        print(answer.read().decode())


if __name__ == "__main__":
    main()
