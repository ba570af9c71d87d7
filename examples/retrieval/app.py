"""Ask Python's reference: search by MiniLM, and compare more closely where the best passage is not clearly good.

dyorc serve examples/retrieval/app.py:ask
"""

from typing import TypedDict

import faiss
import numpy as np
from jaxtyping import Bool, Float, Int
from retrieval_corpus import digest, passages
from retrieval_nets import QUESTION_TOKENS, WIDTH, Encoder, Tokenizer, compare, load_index
from torch import Tensor

import dyorc

NUM_CANDIDATES = 20
NUM_ANSWERS = 5
SURE = 0.55
"""From this similarity of the best passage, the search alone is enough."""
PASSAGES = passages()


class Encoded(TypedDict):
    """A question's vector, and its tokens' vectors."""

    text: Float[Tensor, "batch 384"]
    words: Float[Tensor, "batch 32 384"]


class Hits(TypedDict):
    """The nearest passages to a question, by number, nearest first, and how near they are, -1..1."""

    passage: Int[np.ndarray, "batch 20"]
    similarity: Float[np.ndarray, "batch 20"]


class Answer(TypedDict):
    """The five best passages, best first, and their scores; whether they were compared closely."""

    passage: dyorc.Bytes[np.ndarray, "5"]
    score: Float[np.ndarray, "5"]
    was_reranked: Bool[np.ndarray, ""]


@dyorc.program(max_batch_size=32)
class Tokenise:
    """Splits questions into MiniLM's pieces of words."""

    def __init__(self) -> None:
        self.tokenizer = Tokenizer()

    def __call__(self, question: dyorc.Bytes[np.ndarray, " batch"]) -> Int[np.ndarray, "batch 32"]:
        return np.array([self.tokenizer(each.decode(errors="replace"), QUESTION_TOKENS) for each in question])


@dyorc.program(max_batch_size=8)
class Encode:
    """Turns questions into vectors."""

    def __init__(self) -> None:
        self.encoder = Encoder().eval()

    def __call__(self, tokens: Int[Tensor, "batch 32"]) -> Encoded:
        text, words = self.encoder(tokens)
        return {"text": text, "words": words}


@dyorc.program(max_batch_size=32)
class Search:
    """Finds the passages whose vectors are nearest, by faiss's graph of neighbours (HNSW)."""

    def __init__(self) -> None:
        faiss.omp_set_num_threads(1)  # with more, the graph differs from time to time
        self.index = faiss.IndexHNSWFlat(WIDTH, 32, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction, self.index.hnsw.efSearch = 200, 100
        self.index.add(load_index(digest())["texts"].numpy())

    def __call__(self, text: Float[np.ndarray, "batch 384"]) -> Hits:
        similarity, passage = self.index.search(np.ascontiguousarray(text), NUM_CANDIDATES)
        return {"passage": passage, "similarity": similarity}


@dyorc.program(max_batch_size=64)
class Rerank:
    """Compares a question with one passage, token by token."""

    def __init__(self) -> None:
        self.tokens = load_index(digest())["tokens"]

    def __call__(self, words: Float[Tensor, "batch 32 384"], passage: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        return compare(words, self.tokens[passage].float())


tokenise, encode, search, rerank = Tokenise(), Encode(), Search(), Rerank()


def is_sure(similarity: Float[np.ndarray, "20"]) -> bool:
    return bool(similarity[0] >= SURE)


@dyorc.workflow
async def ask(question: dyorc.Bytes[np.ndarray, ""]) -> Answer:
    encoded = encode(tokenise(question))
    hits = search(encoded["text"])
    sure = await dyorc.when(hits["similarity"], is_sure)
    passage, score = await dyorc.gather(hits["passage"], hits["similarity"])
    if not sure:
        closer = await dyorc.gather(*[rerank(encoded["words"], each) for each in passage])
        score = score + np.array(closer, np.float32)
    best = np.argsort(-score, kind="stable")[:NUM_ANSWERS]
    texts = np.array([str(PASSAGES[passage[at]]).encode() for at in best], object)
    return {"passage": texts, "score": score[best].astype(np.float32), "was_reranked": not sure}
