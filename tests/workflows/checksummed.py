"""Large tensors whose every byte is known in advance: the outputs of these workflows follow from a seed and a length.

A request has a seed of its own, so bytes of another request, of another call or of no call at all never pass for the right ones.
"""

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Bool, Int32, Int64
from numpy.typing import NDArray

import dyorc

MAX_WORDS = 2**20
"""Words of a tensor: 4 MiB."""

_MAX_ROUNDS = 3
_ODD = np.uint32(2654435761)
_NOISE: NDArray[np.uint32] = np.random.default_rng(7).integers(0, 2**32, MAX_WORDS, np.uint32)

Array = NDArray[Any]
Words = Int32[np.ndarray, "n"]
Seed = Int64[np.ndarray, ""]
BatchedWords = Int32[np.ndarray, "batch n"]
Seeds = Int64[np.ndarray, "batch"]


class Mixed(TypedDict):
    """The outputs of `mix`; `level` says whether to go on."""

    words: BatchedWords
    level: Seeds


class Found(TypedDict):
    """The outputs of `check`: whether every byte was right, the CRC-32 of all of them, and how many calls were in the batch."""

    is_right: Bool[np.ndarray, " batch"]
    checksum: Seeds
    num_calls: Seeds


class Verdict(TypedDict):
    """`Found` of a request."""

    is_right: Bool[np.ndarray, ""]
    checksum: Seed
    num_calls: Seed


def made_words(seed: int, num_words: int) -> Array:
    """Returns the first tensor."""
    words = _NOISE[:num_words] * np.uint32((2 * seed + 1) % 2**32)
    words ^= np.uint32(seed * 40503 % 2**32)
    return words.view(np.int32)


def mixed_words(words: Array, other: Array, seed: int) -> Array:
    """Returns what `mix` makes of two tensors."""
    given, turned = words.view(np.uint32), other.view(np.uint32)
    mixed = given * _ODD
    mixed += np.uint32(seed % 2**32)
    mixed ^= turned >> np.uint32(15)
    return mixed.view(np.int32)


def expected_words(seed: int, num_words: int) -> Array:
    """Returns the words that `checked`, `made` and `sent` have to end with."""
    words = made_words(seed, num_words)
    for _ in range(_MAX_ROUNDS):
        words = mixed_words(words, words, seed)
        if not goes_on(words[0]):
            break
    return words


def expected_pair(seed: int, num_words: int) -> Array:
    """Returns the words that `paired` has to end with."""
    return mixed_words(made_words(seed, num_words), made_words(seed + 1, num_words), seed)


def expected_parts(seed: int, num_words: int, num_parts: int) -> list[Array]:
    """Returns the parts that `recited` has to yield."""
    return [mixed_words(words, words, seed) for words in (made_words(seed + at, num_words) for at in range(num_parts))]


def goes_on(level: Any) -> bool:
    """Returns whether there is another round."""
    return bool(level & 1)


def checksum(words: Array) -> int:
    """Returns a checksum over all bytes."""
    return zlib.crc32(np.ascontiguousarray(words).view(np.uint8).data)


@dyorc.program(max_batch_size=4, num_replicas=2)
def make(seed: Seeds, num_words: int) -> BatchedWords:
    """Makes a tensor for each seed."""
    return np.stack([made_words(int(one), num_words) for one in seed])


@dyorc.program(max_batch_size=4, num_replicas=2)
def mix(words: BatchedWords, other: BatchedWords, seed: Seeds) -> Mixed:
    """Changes its first input in place and returns it, or makes new tensors with the same numbers."""
    given, turned = words.view(np.uint32), other.view(np.uint32)
    if int(seed[0]) % 4 == 0:
        mixed = np.stack([mixed_words(*row) for row in zip(words, other, seed.tolist(), strict=True)])
    else:
        given *= _ODD
        given += (seed % 2**32).astype(np.uint32)[:, None]
        given ^= turned >> np.uint32(15)
        mixed = words
    return {"words": mixed, "level": mixed[:, 0].astype(np.int64)}


def _found(words: Array, expected: list[Array]) -> Any:
    is_right = [np.array_equal(row, right) for row, right in zip(words, expected, strict=True)]
    sums = np.array([checksum(row) for row in words], np.int64)
    return {"is_right": np.array(is_right), "checksum": sums, "num_calls": np.full(len(words), len(words), np.int64)}


@dyorc.program(max_batch_size=4, num_replicas=2)
def check(words: BatchedWords, seed: Seeds, is_pair: bool) -> Found:
    """Computes again what must have come, and compares."""
    expected = expected_pair if is_pair else expected_words
    return _found(words, [expected(one, words.shape[1]) for one in seed.tolist()])


@dyorc.program(batched=False, max_ongoing=4, num_replicas=2)
def recite(seed: Seed, num_words: int, num_parts: int) -> Iterator[Words]:
    """Yields tensors, all in the same memory."""
    words = np.empty(num_words, np.int32)
    for at in range(num_parts):
        words[:] = made_words(int(seed) + at, num_words)
        yield words


@dyorc.program(batched=False, max_ongoing=4, num_replicas=2)
async def stir(parts: AsyncIterator[Words], seed: Seed) -> AsyncIterator[Words]:
    """Yields what `mix` makes of each part with itself, in the memory of the part where that is possible."""
    async for words in parts:
        words[:] = mixed_words(words, words, int(seed))
        yield words


@dyorc.workflow
async def recited(seed: Seed, num_words: int, num_parts: int) -> AsyncIterator[Words]:
    """Yields parts that went through two programs, the second of which reads the stream of the first."""
    async for part in stir(recite(seed, num_words, num_parts), seed):
        yield part


@dyorc.workflow
async def checked(seed: Seed, num_words: int) -> Verdict:
    """Runs one to three rounds, as a small inline tensor decides."""
    words = make(seed, num_words)
    for _ in range(_MAX_ROUNDS):
        mixed = mix(words, words, seed)
        words = mixed["words"]
        if not await dyorc.when(mixed["level"], goes_on):
            break
    found = check(words, seed, False)
    return {"is_right": found["is_right"], "checksum": found["checksum"], "num_calls": found["num_calls"]}


@dyorc.workflow
async def made(seed: Seed, num_words: int) -> Words:
    """Answers with the tensor itself; a view of it decides."""
    words = make(seed, num_words)
    for _ in range(_MAX_ROUNDS):
        words = mix(words, words, seed)["words"]
        if not await dyorc.when(words[0], goes_on):
            break
    return words


@dyorc.workflow
async def sent(words: Words, seed: Seed) -> Verdict:
    """Does what `checked` does, with a tensor that the client has made."""
    for _ in range(_MAX_ROUNDS):
        mixed = mix(words, words, seed)
        words = mixed["words"]
        if not await dyorc.when(mixed["level"], goes_on):
            break
    found = check(words, seed, False)
    return {"is_right": found["is_right"], "checksum": found["checksum"], "num_calls": found["num_calls"]}


@dyorc.workflow
async def paired(seed: Seed, next_seed: Seed, num_words: int) -> Verdict:
    """Brings two tensors together, often from two replicas."""
    words = mix(make(seed, num_words), make(next_seed, num_words), seed)["words"]
    found = check(words, seed, True)
    return {"is_right": found["is_right"], "checksum": found["checksum"], "num_calls": found["num_calls"]}
