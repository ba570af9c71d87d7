"""`examples/chat`: the served workflows answer as generation by hand does, with any weights."""

import copy
import importlib.util
import math
import random
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.driver import World
from tests.unit.examples import chat_models
from tests.unit.examples.modules import EXAMPLES, load_module

END = 258
LM = ("prefill", "decode", "verify")
PROGRAMS = (*LM, "begin_draft", "draft", "guard")
QUESTIONS = [b"Who is the cat?", b"the dog", b"", b"\x00\xff a the the", b"a long question, " * 20]
NO_LIMIT = 10_000
LIMITS = [-1, 0, 1, 2, 3, 7, 20, NO_LIMIT]
TEXTS = ["the cat and the dog is a long long question", "the hat, the cat; the end", "who is it and 12"]


class Example:
    """The example's workflows, with models and a tokenizer that need no training."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.programs = load_module("chat", "chat_programs", patch)
        self.loop = load_module("chat", "plain_loop", patch)
        self.tokens = load_module("chat", "chat_tokens", patch)
        chat_model, self.model = chat_models.make(patch, max_length=160)
        with torch.no_grad():
            self.model.places.weight *= 4  # so that answers are more than one token repeated
            self.model.tokens.weight[END] *= 1.5
        self.draft = copy.deepcopy(self.model)
        with torch.no_grad():
            for weight in self.draft.parameters():
                weight.add_(0.03 * torch.randn_like(weight))  # so that it often guesses right, and often not
        self.tokenizer = self.tokens.Tokenizer.learn(TEXTS, 300)
        models = {"main": self.model, "draft": self.draft}
        patch.setattr(self.programs, "load", lambda name, size: models[name])
        patch.setattr(self.programs, "load_tokenizer", lambda: self.tokenizer)
        patch.setattr(self.programs, "weights_of", str)
        patch.setattr(dyorc, "load_module", lambda make, path: _guard(make))
        # Replicas set it, which are processes of their own; here it would outlast the test.
        patch.setattr(torch, "set_num_threads", lambda num: None)
        self.workflows = _load_workflows()
        assert chat_model.MAIN.max_length == 160

    def prompt(self, question: bytes) -> list[int]:
        return self.tokenizer.prompt(question)

    def by_hand(self, question: bytes, max_tokens: int = NO_LIMIT) -> bytes:
        """Returns the answer of the plain loop."""
        limit = min(max(1, max_tokens), self.programs.MAX_TOKENS)
        return self.tokenizer.decode(self.loop.answer(self.model, self.prompt(question), limit))

    @torch.inference_mode()
    def best_by_hand(self, question: bytes, num_answers: int) -> bytes:
        """Returns the likeliest of several answers, each with whole texts and without a cache."""
        prompt = self.prompt(question)
        answers: list[tuple[float, list[int]]] = []
        for first in self._scores(prompt).topk(num_answers).indices.tolist():
            text = [*prompt, first]
            while text[-1] != END and len(text) < len(prompt) + self.programs.MAX_TOKENS:
                text.append(int(self._scores(text).argmax()))
            new = range(len(prompt), len(text))
            answers.append((sum(float(self._scores(text[:at])[text[at]]) for at in new) / len(new), text[len(prompt) :]))
        return self.tokenizer.decode(max(answers)[1])

    def _scores(self, text: list[int]) -> Tensor:
        return self.model(torch.tensor([text]), torch.zeros(1, len(text), dtype=torch.int64))[0, -1].log_softmax(dim=0)


def _guard(make: Any) -> Any:
    torch.manual_seed(0)
    return make().eval()


def _load_workflows() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chat_workflow", EXAMPLES / "chat" / "workflow.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Example:
    return Example(monkeypatch)


def parts_of(workflow: Any, *args: Any) -> list[bytes]:
    return list(dyorc.run(workflow, *args))


def test_answers_and_guesses_differ(example: Example) -> None:
    """Else the tests below say nothing."""
    lengths = {len(example.loop.answer(example.model, example.prompt(question), NO_LIMIT)) for question in QUESTIONS}
    assert len(lengths) == len(QUESTIONS)
    guessed = [example.loop.answer_guessing(example.model, example.draft, example.prompt(each), NO_LIMIT) for each in QUESTIONS]
    right_ratio = sum(each.num_right for each in guessed) / sum(each.num_guessed for each in guessed)
    assert 0.2 < right_ratio < 0.8


@pytest.mark.parametrize("name", ["chat", "chat_speculative"])
@pytest.mark.parametrize("max_tokens", LIMITS)
def test_the_answer_is_that_of_the_plain_loop(example: Example, name: str, max_tokens: int) -> None:
    for question in QUESTIONS:
        parts = parts_of(getattr(example.workflows, name), question, max_tokens)
        assert b"".join(parts) == example.by_hand(question, max_tokens)


@pytest.mark.parametrize("name", ["chat", "chat_speculative"])
def test_an_answer_that_never_ends_stops_where_the_model_has_no_more_places(example: Example, name: str) -> None:
    with torch.no_grad():
        example.model.tokens.weight[END] = 0
    question = b"?" * 100
    tokens = example.loop.answer(example.model, example.prompt(question), NO_LIMIT)
    assert len(tokens) > example.programs.MAX_TOKENS
    parts = parts_of(getattr(example.workflows, name), question)
    assert b"".join(parts) == example.tokenizer.decode(tokens[: example.programs.MAX_TOKENS])


def test_each_part_is_a_token(example: Example) -> None:
    for question in QUESTIONS:
        tokens = example.loop.answer(example.model, example.prompt(question), NO_LIMIT)
        assert parts_of(example.workflows.chat, question) == [example.tokenizer.decode([token]) for token in tokens]


def test_with_guesses_each_part_is_a_round_with_the_guesses_of_the_plain_loop(example: Example) -> None:
    for question in QUESTIONS:
        guessed = example.loop.answer_guessing(example.model, example.draft, example.prompt(question), NO_LIMIT)
        assert len(parts_of(example.workflows.chat_speculative, question)) == 1 + guessed.num_guessed // 4


@pytest.mark.parametrize("max_tokens", range(2, 13))
def test_no_round_follows_the_last_token_that_was_asked_for(
    example: Example, monkeypatch: pytest.MonkeyPatch, max_tokens: int
) -> None:
    def load(name: str, size: Any) -> Any:
        return example.model  # as its own draft it is always right

    monkeypatch.setattr(example.programs, "load", load)
    with torch.no_grad():
        example.model.tokens.weight[END] = 0
    num_rounds = math.ceil((max_tokens - 1) / (example.programs.NUM_GUESSED + 1))
    assert len(parts_of(example.workflows.chat_speculative, b"?", max_tokens)) == 1 + num_rounds


@pytest.mark.parametrize("num_answers", [1, 3, 4])
def test_the_best_of_several_answers(example: Example, num_answers: int) -> None:
    answers = {question: dyorc.run(example.workflows.best_of, question, num_answers) for question in QUESTIONS}
    assert answers == {question: example.best_by_hand(question, num_answers) for question in QUESTIONS}
    if num_answers == 1:
        assert answers == {question: example.by_hand(question) for question in QUESTIONS}
    else:
        assert answers != {question: example.by_hand(question) for question in QUESTIONS}


def test_the_guard_stops_harmful_questions_and_no_others(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [float(dyorc.run(example.workflows.guard, question)) for question in QUESTIONS]
    monkeypatch.setattr(example.workflows, "MIN_HARM", sorted(scores)[3])
    answers = [b"".join(parts_of(example.workflows.chat_guarded, question)) for question in QUESTIONS]
    assert answers == [
        example.workflows.REFUSAL if score >= sorted(scores)[3] else example.by_hand(question)
        for question, score in zip(QUESTIONS, scores, strict=True)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_many_at_once_share_batches_and_an_engine_that_always_guesses_changes_nothing(example: Example, seed: int) -> None:
    world = _eager_world(example)
    named = {"chat": example.workflows.chat, "chat_speculative": example.workflows.chat_speculative}
    requests = {(name, question): world.submit(named[name], question) for name in named for question in QUESTIONS}
    best = {question: world.submit(example.workflows.best_of, question) for question in QUESTIONS}
    rng, sizes = random.Random(seed), set[int]()
    while world.in_flight:
        batch = rng.choice([batch for batch in world.in_flight.values() if world.can_go_on(batch)])
        sizes.add(batch.size)
        world.finish(batch)
    for (_, question), request in requests.items():
        assert b"".join(world.part_values(request)) == example.by_hand(question)
    for question, request in best.items():
        assert world.result(request) == example.best_by_hand(question, 3)
    assert max(sizes) > len(QUESTIONS)
    world.check_nothing_is_left()


def test_a_cache_that_was_lost_is_made_again_by_one_pass(example: Example) -> None:
    world = _eager_world(example)
    question = QUESTIONS[2]
    request = world.submit(example.workflows.chat, question)
    while len(world.sizes(example.workflows.decode)) < 10:
        world.finish()
    for program in LM:
        world.leave(f"{program}@lm")
    _add(world, example, *LM)
    world.finish_all()
    assert b"".join(world.part_values(request)) == example.by_hand(question)
    rebuilt = [len(batch.action.chain) for batch in world.history if batch.action.chain]
    assert len(rebuilt) == 1
    assert rebuilt[0] > 8
    assert len(world.sizes(example.workflows.prefill)) == 1, "the question was read again"
    world.check_nothing_is_left()


def _eager_world(example: Example) -> World:
    """Makes a world with a process for each group, under an engine that always guesses."""
    speculation = SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)
    programs: list[Any] = [getattr(example.workflows, name) for name in PROGRAMS]
    world = World(programs, EngineConfig(speculation=speculation))
    _add(world, example, *PROGRAMS)
    for program in programs:
        pool = world.engine.scheduler.pools[program.name]
        pool.latency.observe(1, 0.1)
        pool.sojourn_ns.add(0.1e9)
        pool.demand.add(0, 0)
    return world


def _add(world: World, example: Example, *names: str) -> None:
    for name in names:
        program = getattr(example.workflows, name)
        world.join(program, f"{name}@{program.group}", process=program.group)
