"""Programs that hand each other tensors of 8 MiB, whose every byte tells whether it is right."""

import os
import time
from typing import TypedDict

import numpy as np
from jaxtyping import Int, UInt8, UInt64

import dyorc

NUM_WORDS = 2**20
"""Words of 8 bytes in a tensor that `make` returns."""

MARK = b"all that goes between hosts is encrypted"


class Digest(TypedDict):
    """The outputs of `digest`, call by call."""

    checksum: Int[np.ndarray, " batch"]
    pid: Int[np.ndarray, " batch"]


class OneDigest(TypedDict):
    """The outputs of `carried`: the checksum of the tensor that came, and which processes made and read it."""

    checksum: Int[np.ndarray, ""]
    maker: Int[np.ndarray, ""]
    reader: Int[np.ndarray, ""]


class Made(TypedDict):
    """The outputs of `make`, call by call."""

    words: UInt64[np.ndarray, "batch 1048576"]
    pid: Int[np.ndarray, " batch"]


def words_of(seed: int) -> UInt64[np.ndarray, "1048576"]:
    """Returns words that differ from those of every other seed, and from one another."""
    return np.arange(NUM_WORDS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)


def checksum_of(words: UInt64[np.ndarray, " words"]) -> int:
    """Returns a number that changes if any word is wrong or in the wrong place."""
    return int(np.sum(words * np.arange(1, len(words) + 1, dtype=np.uint64)).astype(np.int64))


@dyorc.program(max_batch_size=1)
def make(seed: Int[np.ndarray, " batch"]) -> Made:
    """Makes the words of a seed."""
    return {"words": np.stack([words_of(int(each)) for each in seed]), "pid": np.full(len(seed), os.getpid())}


@dyorc.program(max_batch_size=1)
def digest(words: UInt64[np.ndarray, "batch 1048576"], rest_s: float) -> Digest:
    """Computes checksums; takes `rest_s` seconds."""
    time.sleep(rest_s)
    checksums = np.array([checksum_of(each) for each in words])
    return {"checksum": checksums, "pid": np.full(len(words), os.getpid())}


@dyorc.workflow
async def carried(seed: Int[np.ndarray, ""], rest_s: float = 0.0) -> OneDigest:
    """Hands a tensor from one program to another."""
    made = make(seed)
    read = digest(made["words"], rest_s)
    return {"checksum": read["checksum"], "maker": made["pid"], "reader": read["pid"]}


@dyorc.program(max_batch_size=1)
def repeat(times: Int[np.ndarray, " batch"]) -> UInt8[np.ndarray, "batch bytes"]:
    """Returns `MARK`, repeated."""
    return np.frombuffer(MARK * int(times[0]), np.uint8).reshape(1, -1)


@dyorc.program(max_batch_size=1)
def count(letters: UInt8[np.ndarray, "batch bytes"]) -> Int[np.ndarray, " batch"]:
    """Counts occurrences of `MARK`."""
    return np.array([each.tobytes().count(MARK) for each in letters])


@dyorc.workflow
async def marked(times: Int[np.ndarray, ""]) -> Int[np.ndarray, ""]:
    """Makes a tensor that is easy to find in what goes over a wire."""
    return count(repeat(times))


make_there = make.with_options(name="make_there", ray_actor_options={"num_cpus": 0.2, "resources": {"host_b": 0.1}})
digest_here = digest.with_options(name="digest_here", ray_actor_options={"num_cpus": 0.2, "resources": {"host_a": 0.1}})


@dyorc.workflow
async def carried_far(seed: Int[np.ndarray, ""], rest_s: float = 0.0) -> OneDigest:
    """Does what `carried` does, on a Ray cluster, from a node with the resource `host_b` to one with `host_a`."""
    made = make_there(seed)
    read = digest_here(made["words"], rest_s)
    return {"checksum": read["checksum"], "maker": made["pid"], "reader": read["pid"]}
