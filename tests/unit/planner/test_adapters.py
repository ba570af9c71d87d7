"""The cheapest way between two layouts is right, is never dearer than what a person would write, and uses what it should."""

from collections import Counter
from itertools import product
from math import prod

import pytest

from benchmarks.papers.layout_pairs import is_exact, layouts_of, mesh_of, tally
from dyorc.errors import PlanError
from dyorc.planner.plan import CollectiveKind, MeshAxis, PlanBuilder
from dyorc.planner.plan.adapters import Adapters, Hop, Spot, Tensor, bytes_moved
from dyorc.planner.plan.layout import overlap, region_of
from dyorc.planner.program import PARTIAL, REPLICATE, Partial, Placement, Replicate, Shard
from tests.unit.planner.examples import example

_MATRIX = Tensor((8, 8), (1, 1), 8)
P, R = PARTIAL, REPLICATE


def test_every_pair_of_layouts_on_2_and_4_devices_is_joined_exactly_and_as_cheaply_as_by_hand() -> None:
    found = tally(num_devices=(2, 4))
    assert found.num_pairs == 1062
    assert not found.wrong
    assert not found.dearer
    assert found.num_cheaper > 0


def test_a_sample_of_the_pairs_on_8_devices_in_up_to_3_dims_is_joined_exactly_and_as_cheaply_as_by_hand() -> None:
    found = tally(every=23, num_devices=[8])
    assert found.num_pairs == 974
    assert not found.wrong
    assert not found.dearer


def _kinds(sizes: tuple[int, ...], before: tuple[Placement, ...], after: tuple[Placement, ...]) -> list[tuple[str, int | None]]:
    adapters, mesh = Adapters(bytes_moved), mesh_of(sizes)

    def spot(layout: tuple[Placement, ...]) -> Spot:
        placed: list[Placement] = []
        for placement in layout:
            shard = adapters.shard(_MATRIX, mesh, tuple(placed), placement.dim) if isinstance(placement, Shard) else placement
            assert shard
            placed.append(shard)
        return Spot(mesh, tuple(placed))

    path = adapters.path(_MATRIX, spot(before), spot(after))
    assert is_exact(_MATRIX, spot(before), spot(after), path)
    return [(str(hop.kind), hop.axis) for hop in path.hops]


@pytest.mark.parametrize(
    ("sizes", "before", "after", "expected"),
    [
        ((4,), (P,), (Shard(0),), [("reduce_scatter", 0)]),
        ((4,), (Shard(0),), (Shard(1),), [("all_to_all", 0)]),
        ((4,), (P,), (R,), [("all_reduce", 0)]),
        ((4,), (Shard(0),), (P,), [("all_gather", 0), ("mask", 0)]),
        ((2, 2), (P, R), (R, Shard(0)), [("slice", 1), ("all_reduce", 0)]),  # half of the sum
        ((2, 2), (P, Shard(0)), (R, R), [("all_reduce", 0), ("all_gather", 1)]),
        ((2, 2), (R, Shard(0)), (Shard(0), R), [("all_gather", 1), ("slice", 0)]),
        ((2, 2), (Shard(0), Shard(0)), (R, R), [("all_gather", 1), ("all_gather", 0)]),  # the inner cut first
        ((2, 2), (Shard(0), Shard(0)), (Shard(1), Shard(0)), [("all_gather", 1), ("all_to_all", 0), ("slice", 1)]),
    ],
    ids=str,
)
def test_well_known_conversions(
    sizes: tuple[int, ...], before: tuple[Placement, ...], after: tuple[Placement, ...], expected: list[tuple[str, int | None]]
) -> None:
    assert _kinds(sizes, before, after) == expected


@pytest.mark.parametrize("sizes", [(2, 2), (4,)], ids=str)
@pytest.mark.parametrize("first_rank", [0, 1, 4])
def test_every_pair_of_layouts_on_two_meshes_is_joined_exactly(sizes: tuple[int, ...], first_rank: int) -> None:
    adapters = Adapters(bytes_moved)
    source, target = mesh_of((2,), "source"), mesh_of(sizes, "target", first_rank)
    num_pairs = 0
    for before, after in product(layouts_of(adapters, _MATRIX, source), layouts_of(adapters, _MATRIX, target)):
        path = adapters.path(_MATRIX, Spot(source, before), Spot(target, after))
        assert is_exact(_MATRIX, Spot(source, before), Spot(target, after), path), (before, after)
        num_pairs += 1
    assert num_pairs == 4 * 4 ** len(sizes)


def test_what_every_rank_of_a_mesh_needs_comes_to_it_once() -> None:
    """One rank sends each other rank a part, and they gather: it sends the tensor once instead of four times."""
    adapters = Adapters(bytes_moved)
    source, target = mesh_of((1,), "source"), mesh_of((4,), "target", 1)
    path = adapters.path(_MATRIX, Spot(source, (R,)), Spot(target, (R,)))
    assert [hop.kind for hop in path.hops] == [None, CollectiveKind.ALL_GATHER]


def _busiest_bytes(tensor: Tensor, source: Spot, target: Spot) -> int:
    """What the busiest rank sends or receives: each piece that is no copy goes to whoever needs a part of it."""
    moved = Counter[tuple[str, int]]()
    pieces = {(source.mesh.rank_at(c), region_of(tensor.shape, source.layout, c)): c for c in _firsts(source, Replicate)}
    wanted = {(target.mesh.rank_at(c), region_of(tensor.shape, target.layout, c)) for c in _firsts(target, Partial)}
    num_terms = prod(a.size for a, p in zip(source.mesh.axes, source.layout, strict=True) if a.is_time and isinstance(p, Partial))
    for (sender, piece), (receiver, region) in product(pieces, wanted):
        if common := overlap(piece, region):
            num_bytes = num_terms * prod(stop - start for start, stop in common) * tensor.element_bytes
            moved["sent", sender] += num_bytes
            moved["received", receiver] += num_bytes
    return max(moved.values(), default=0)


def _firsts(spot: Spot, kind: type[Placement]) -> list[tuple[int, ...]]:
    return [c for c in spot.mesh.coordinates if not any(i and isinstance(p, kind) for i, p in zip(c, spot.layout, strict=True))]


@pytest.mark.parametrize("ratios", [(1, 1), (3, 1)], ids=str)
def test_a_transfer_between_meshes_costs_what_its_busiest_rank_moves(ratios: tuple[int, int]) -> None:
    tensor, adapters = Tensor((8, 6), (1, 2), 4), Adapters(bytes_moved)
    for times in ([], [0], [1]):
        source, target = mesh_of((2, 2), "source", 0, times), mesh_of((3, 2), "target", 4, times)
        adapters.divide(source, {} if 1 in times else {"axis1": ratios})
        for before, after in product(layouts_of(adapters, tensor, source), layouts_of(adapters, tensor, target)):
            hop = Hop(Spot(source, before), Spot(target, after))
            assert bytes_moved(tensor, hop) == 1 + _busiest_bytes(tensor, hop.source, hop.target), hop


def test_uneven_shares_and_shares_of_nothing_are_joined_exactly() -> None:
    tensor = Tensor((8, 6), (1, 2), 8)
    for ratios in ((3, 1), (1, 0)):
        adapters, mesh = Adapters(bytes_moved), mesh_of((2, 2))
        adapters.divide(mesh, {"axis1": ratios})
        layouts = list(layouts_of(adapters, tensor, mesh))
        for before, after in product(layouts, layouts):
            path = adapters.path(tensor, Spot(mesh, before), Spot(mesh, after))
            assert is_exact(tensor, Spot(mesh, before), Spot(mesh, after), path), (before, after)


def test_sums_over_time_are_made_before_anything_is_sent() -> None:
    adapters, mesh = Adapters(bytes_moved), mesh_of((4, 2), times=[0])
    path = adapters.path(_MATRIX, Spot(mesh, (P, P)), Spot(mesh, (R, R)))
    assert [(hop.kind, hop.axis) for hop in path.hops] == [(CollectiveKind.ALL_REDUCE, 0), (CollectiveKind.ALL_REDUCE, 1)]
    for before, after in product(layouts_of(adapters, _MATRIX, mesh), repeat=2):
        path = adapters.path(_MATRIX, Spot(mesh, before), Spot(mesh, after))
        assert is_exact(_MATRIX, Spot(mesh, before), Spot(mesh, after), path), (before, after)


def test_another_cost_leads_elsewhere() -> None:
    def without_all_to_all(tensor: Tensor, hop: Hop) -> float:
        return 1e9 if hop.kind is CollectiveKind.ALL_TO_ALL else bytes_moved(tensor, hop)

    mesh = mesh_of((2,))
    adapters = Adapters(without_all_to_all)
    path = adapters.path(_MATRIX, Spot(mesh, (Shard(0, (4, 4)),)), Spot(mesh, (Shard(1, (4, 4)),)))
    assert [hop.kind for hop in path.hops] == [CollectiveKind.ALL_GATHER, CollectiveKind.SLICE]


def test_a_cut_that_does_not_fit_is_refused() -> None:
    program = example("gpt").program
    builder = PlanBuilder(program)
    builder.mesh("ranks", [MeshAxis(name="a", size=2), MeshAxis(name="b", size=2)], range(4), {"a": (3, 1)})
    with pytest.raises(PlanError, match=r"dimension 0 of input_0, of extent 8 .*cannot be cut along b: .*equal pieces"):
        builder.source("input_0", "ranks", [Shard(0), Shard(0)])
