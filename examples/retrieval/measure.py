"""Judges the search by the questions of `retrieval_questions.py`, and compares the workflow with plain PyTorch; takes 20 seconds.

python examples/retrieval/measure.py
"""

from dataclasses import dataclass

import app
import numpy as np
import torch
from retrieval_corpus import digest, passages
from retrieval_nets import QUESTION_TOKENS, Encoder, Tokenizer, compare, load_index
from retrieval_questions import QUESTIONS

import dyorc


@dataclass(frozen=True)
class Ranking:
    """All passages, or the nearest of them, for one question: by number, best first, and their scores."""

    passages: np.ndarray
    scores: np.ndarray


class PlainSearch:
    """The same steps without DyOrc and faiss: one question at a time, compared with every passage."""

    def __init__(self) -> None:
        self._tokenizer, self._encoder, self._index = Tokenizer(), Encoder().eval(), load_index(digest())

    @torch.inference_mode()
    def __call__(self, question: str, *, sure: float) -> Ranking:
        """Ranks the passages; compares the best of them closely unless the very best is at least as near as `sure`."""
        text, words = self._encoder(torch.tensor([self._tokenizer(question, QUESTION_TOKENS)]))
        scores = (text @ self._index["texts"].T)[0]
        best = scores.argsort(descending=True, stable=True)[: app.NUM_CANDIDATES]
        near = scores[best]
        if near[0] < sure:
            near = near + compare(words.expand(len(best), -1, -1), self._index["tokens"][best].float())
        order = near.argsort(descending=True, stable=True)
        return Ranking(best[order].numpy(), near[order].numpy())


def main() -> None:
    """Prints how often the answer is the first, and how far the workflow is from plain PyTorch."""
    plain = PlainSearch()
    ways = {"search": -1.0, "search, and reranking where unsure": app.SURE, "search, and reranking always": 2.0}
    print(f"{len(QUESTIONS)} questions, {len(passages())} passages")
    print(f"{'':<36}{'first':>8}{'in 5':>8}{'MRR@10':>8}")
    for way, sure in ways.items():
        ranks = [rank(plain(question, sure=sure).passages, words) for question, words in QUESTIONS]
        first, in_5 = (np.mean([each is not None and each < limit for each in ranks]) for limit in (1, 5))
        mrr = np.mean([0.0 if each is None or each >= 10 else 1 / (each + 1) for each in ranks])
        print(f"{way:<36}{first:>8.1%}{in_5:>8.1%}{mrr:>8.3f}")
    answers = [dyorc.run(app.ask, question.encode()) for question, _ in QUESTIONS]
    expected = [plain(question, sure=app.SURE) for question, _ in QUESTIONS]
    kept = [len(set(near(question)) & set(plain(question, sure=-1.0).passages)) / app.NUM_CANDIDATES for question, _ in QUESTIONS]
    same = [same_texts(*pair) for pair in zip(answers, expected, strict=True)]
    farthest = max(
        np.abs(each["score"] - plainly.scores[: app.NUM_ANSWERS]).max() for each, plainly in zip(answers, expected, strict=True)
    )
    print(f"sure: {np.mean([not answer['was_reranked'] for answer in answers]):.0%} of the questions")
    print(f"recall@{app.NUM_CANDIDATES} of faiss's graph, compared with every passage: {np.mean(kept):.2%}")
    print(f"the workflow's answers equal plain PyTorch's: {sum(same)} of {len(same)}; scores differ by {farthest:.1e} at most")


def rank(ranked: np.ndarray, words: str) -> int | None:
    """Returns the place, from 0, of the first passage that answers, or None."""
    return next((at for at, each in enumerate(ranked) if words.lower() in str(passages()[each]).lower()), None)


def near(question: str) -> list[int]:
    """Returns the candidates that the workflow's own search finds."""
    tokens = dyorc.run(app.tokenise, question.encode())
    return dyorc.run(app.search, dyorc.run(app.encode, tokens)["text"])["passage"].tolist()


def same_texts(answer: app.Answer, plain: Ranking) -> bool:
    """Returns whether a workflow answers what plain code does."""
    return [text.decode() for text in answer["passage"]] == [str(passages()[at]) for at in plain.passages[: app.NUM_ANSWERS]]


if __name__ == "__main__":
    main()
