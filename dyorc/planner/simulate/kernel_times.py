"""How long a kernel takes: what ranks compute and what they send follow each other in chunks, as `runtime/fused.py` has it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTimes:
    """Seconds of one chunk, of the slowest rank.

    Attributes:
        product_s: To make the terms of all slices; 0 if they are there.
        scatter_s: To send them once round the ring.
        compute_s: What runs on the sums.
        gather_s: To gather what that makes.
    """

    product_s: float
    scatter_s: float
    compute_s: float
    gather_s: float


def kernel_s(times: ChunkTimes, num_chunks: int, num_ranks: int) -> float:
    """Returns the seconds of a kernel.

    A rank computes: the terms of chunk 0, of chunk 1, what follows the sums of chunk 0, the terms of chunk 2, ... The ring moves:
    chunk 0, chunk 1, what is gathered of chunk 0, chunk 2, ... Each term is sent when it is made, and the one before has gone.
    """
    term_s, hop_s = times.product_s / num_ranks, times.scatter_s / max(num_ranks - 1, 1)
    computing_s = moving_s = 0.0
    reduced_s: list[float] = []
    for chunk in range(num_chunks + 1):
        if chunk < num_chunks:
            for hop in range(num_ranks):
                computing_s += term_s
                moving_s = max(moving_s, computing_s) + hop_s * (hop < num_ranks - 1)
            reduced_s.append(moving_s)
        if chunk:
            computing_s = max(computing_s, reduced_s[chunk - 1]) + times.compute_s
            moving_s = max(moving_s, computing_s) + times.gather_s
    return moving_s
