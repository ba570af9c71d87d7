"""Every plan is read as it was written, its text does not depend on the order of mappings, and no changed text is read."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyorc.errors import PlanError
from dyorc.planner.plan import (
    Algorithm,
    Apply,
    ChannelKind,
    Collective,
    CollectiveKind,
    Edge,
    Inference,
    Kernel,
    Limit,
    Mesh,
    MeshAxis,
    Network,
    Overlap,
    Placed,
    Plan,
    Provenance,
    Transfer,
)
from dyorc.planner.plan.plan_file import digest_of, plan_from_json, plan_to_json
from dyorc.planner.program import PARTIAL, REPLICATE, Shard, Value, ValueKind, ValueRef
from dyorc.planner.program.graph import Dtype, OutputShape, OutputStart

_names = st.text(min_size=1, max_size=6)
_sizes = st.lists(st.integers(0, 9), max_size=5).map(tuple)
_placements = st.one_of(
    st.just(REPLICATE),
    st.just(PARTIAL),
    st.builds(Shard, st.integers(0, 4), st.none() | _sizes.filter(bool)),
)
_parts = st.none() | st.integers(0, 9)
_limits = st.lists(
    st.builds(Limit, source=_names, target=_names, interface=_names, bytes_per_s=st.floats(1, 1e12)),
    max_size=2,
    unique_by=lambda limit: (limit.source, limit.target, limit.interface),
).map(tuple)
_ranks = st.integers(0, 9)
_edges = st.builds(Edge, source=_ranks, target=_ranks, kind=st.sampled_from(ChannelKind), slot=st.integers(0, 9))


def _kernels(tensors: list[str]) -> st.SearchStrategy[Kernel]:
    cuts = st.dictionaries(st.sampled_from(tensors), st.integers(0, 4), max_size=2)
    overlap = st.none() | st.builds(Overlap, num_steps=st.integers(0, 9), order=_sizes, cuts=cuts)
    return st.builds(Kernel, first=st.integers(0, 9), end=st.integers(0, 9), num_chunks=st.integers(1, 9), overlap=overlap)


_inferences = st.builds(
    Inference, inputs=st.lists(_names, max_size=2).map(tuple), outputs=st.lists(_names, max_size=2).map(tuple),
    max_samples=st.integers(1, 99), batch_dims=st.dictionaries(_names, _sizes, max_size=2), is_proved=st.booleans(),
)  # fmt: skip


@st.composite
def _meshes(draw: st.DrawFn) -> Mesh:
    sizes = draw(st.lists(st.integers(1, 3), max_size=3))
    time = draw(st.integers(0, 3))
    axes = tuple(MeshAxis(name=f"axis{i}", size=size, is_time=i == time) for i, size in enumerate(sizes))
    num_ranks = 1
    for axis in axes:
        num_ranks *= 1 if axis.is_time else axis.size
    return Mesh(name=draw(_names), axes=axes, ranks=tuple(draw(st.permutations(range(num_ranks)))))


def _arguments(tensors: list[str]) -> st.SearchStrategy[Any]:
    leaves = st.one_of(
        st.sampled_from(tensors).map(ValueRef), st.sampled_from([OutputShape(), OutputStart(), Dtype("float64"), None]),
        st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), _names,
    )  # fmt: skip
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


def _steps(tensors: list[str], meshes: list[str]) -> st.SearchStrategy[Any]:
    tensor, arguments = st.sampled_from(tensors), _arguments(tensors)
    return st.one_of(
        st.builds(
            Apply, node=_names, op=_names, arguments=st.lists(arguments, max_size=3).map(tuple),
            keywords=st.lists(st.tuples(_names, arguments), max_size=2).map(tuple),
            outputs=st.lists(tensor | st.just(""), min_size=1, max_size=2).filter(any).map(tuple),
            mesh=st.sampled_from(meshes), part=_parts,
        ),
        st.builds(
            Collective, kind=st.sampled_from(CollectiveKind), source=tensor, target=tensor, axis=_names, part=_parts,
            algorithm=st.sampled_from(Algorithm),
        ),
        st.builds(Transfer, source=tensor, target=tensor, part=_parts, edges=st.lists(_edges, max_size=2).map(tuple)),
    )  # fmt: skip


@st.composite
def _plans(draw: st.DrawFn) -> Plan:
    meshes = {mesh.name: mesh for mesh in draw(st.lists(_meshes(), min_size=1, max_size=2))}
    shapes = st.lists(st.integers(0, 99), max_size=3).map(tuple)
    values = {
        name: Value(name=name, shape=draw(shapes), dtype="float32", kind=draw(st.sampled_from(ValueKind)))
        for name in draw(st.lists(_names, min_size=1, max_size=3, unique=True))
    }
    tensors: dict[str, Placed] = {}
    for name in draw(st.lists(_names, min_size=1, max_size=4, unique=True)):
        mesh = draw(st.sampled_from(sorted(meshes)))
        layout = tuple(draw(_placements) for _ in meshes[mesh].axes)
        tensors[name] = Placed(value=draw(st.sampled_from(sorted(values))), mesh=mesh, layout=layout)
    tensor = st.sampled_from(sorted(tensors))
    return Plan(
        program=draw(_names), values=values, target=draw(_names), cluster=draw(_names), meshes=meshes, tensors=tensors,
        sources=draw(st.dictionaries(st.sampled_from(sorted(values)), st.lists(tensor, min_size=1).map(tuple))),
        steps=tuple(draw(st.lists(_steps(sorted(tensors), sorted(meshes)), max_size=6))),
        results=draw(st.dictionaries(_names, tensor, max_size=2)),
        provenance=draw(
            st.builds(
                Provenance, planner=_names, seed=st.integers(0, 9), cost_s=st.none() | st.floats(0, 9),
                search_s=st.none() | st.floats(0, 9), notes=st.dictionaries(_names, _names, max_size=2),
            )
        ),
        network=draw(st.none() | st.builds(Network, limits=_limits, is_strict=st.booleans())),
        inference=draw(st.none() | _inferences),
        kernels=tuple(draw(st.lists(_kernels(sorted(tensors)), max_size=2))),
    )  # fmt: skip


@settings(max_examples=30)
@given(_plans())
def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    text = plan_to_json(plan)
    read = plan_from_json(text)
    assert read == plan
    assert plan_to_json(read) == text
    assert digest_of(read) == digest_of(plan)


@settings(max_examples=30)
@given(_plans(), st.randoms(use_true_random=False))
def test_the_order_of_mappings_is_not_part_of_a_plan(plan: Plan, random: Any) -> None:
    def shuffled(mapping: Any) -> Any:
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    fields = ("values", "meshes", "tensors", "sources", "results")
    other = Plan(**{**vars(plan), **{name: shuffled(getattr(plan, name)) for name in fields}})
    assert plan_to_json(other) == plan_to_json(plan)


@settings(max_examples=30)
@given(_plans(), st.integers(min_value=0), st.binary(min_size=1, max_size=1))
def test_a_changed_character_is_found_unless_it_means_the_same(plan: Plan, position: int, byte: bytes) -> None:
    text = plan_to_json(plan)
    at = position % len(text)
    changed = text[:at] + chr(byte[0] % 127) + text[at + 1 :]
    try:
        read = plan_from_json(changed)
    except PlanError:
        return
    assert json.loads(changed) == json.loads(text) or digest_of(read) == digest_of(plan)


@settings(max_examples=30)
@given(_plans(), st.floats(0, 1, exclude_max=True))
def test_a_torn_plan_is_refused(plan: Plan, where: float) -> None:
    text = plan_to_json(plan)
    with pytest.raises(PlanError):
        plan_from_json(text[: int(where * (len(text) - 2))])
