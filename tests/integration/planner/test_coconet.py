"""On real ranks, a kernel computes what its steps compute, to the bit where the order is the same, and sends as many bytes."""

from collections.abc import Mapping
from math import prod

import torch

from dyorc.planner.cluster import even_cluster
from dyorc.planner.passes.coconet import fuse_updates, overlap_products, slice_updates, use_rings
from dyorc.planner.planners.baselines.data_parallel import dp_even
from dyorc.planner.runtime import RankForkServer, RankOptions, Ranks
from tests.unit.planner.test_coconet import multiplied, split_by_columns, trained


def _is_same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_kernel_is_its_steps_to_the_bit_and_sends_what_a_ring_sends(fork_server: RankForkServer) -> None:
    found = trained("adam")
    num, width = 3, prod(found.program.values["w"].shape) * 8
    plan = use_rings(dp_even(found.program, even_cluster(num)))
    with Ranks(RankOptions(num_ranks=num), fork_server.fork) as ranks:
        whole = ranks.run(plan, found.sources)
        steps = ranks.run(slice_updates(plan, found.program), found.sources)
        for num_chunks in (1, 4, 50):  # more chunks than rows: some are empty
            for overlap in (False, True):
                ran = ranks.run(fuse_updates(plan, found.program, num_chunks), found.sources, overlap=overlap)
                assert _is_same(ran.results, steps.results)
                assert ran.sent_bytes == steps.sent_bytes
                assert max(ran.peak_bytes) < max(whole.peak_bytes)
    for name, tensor in found.results.items():
        torch.testing.assert_close(steps.results[name], tensor, rtol=0, atol=1e-9)
    expected = 2 * (num - 1) * width + 2 * (num - 1) * 8  # of all ranks: the gradient and the parameter, and the loss
    assert sum(steps.sent_bytes) == expected
    assert sum(whole.sent_bytes) == expected


def test_a_product_is_made_while_its_sum_goes_round_and_each_rank_sends_as_much(fork_server: RankForkServer) -> None:
    """Whole numbers, so that any order of additions inside a product gives the same bits."""
    found = multiplied()
    plan = use_rings(split_by_columns(found, 3))
    with Ranks(RankOptions(num_ranks=3), fork_server.fork) as ranks:
        whole = ranks.run(plan, found.sources)
        for num_chunks in (1, 2, 7):  # more chunks than columns of a slice: some are empty
            made = overlap_products(plan, found.program, num_chunks)
            for overlap in (False, True):
                ran = ranks.run(made, found.sources, overlap=overlap)
                assert _is_same(ran.results, whole.results)
                assert sum(ran.sent_bytes) == sum(whole.sent_bytes)
            assert max(ran.peak_bytes) < max(whole.peak_bytes)
    assert _is_same(whole.results, found.results)
