"""The oracle line: what it records of a flow, the bound that follows, and how times of batches are measured."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.oracle.bound import Bound, calls_per_request, lower_bound, saturation_rps, simulated
from benchmarks.oracle.costs import batch_sizes, measure, parsed, rising
from benchmarks.oracle.recording import RecordedCall, Tree, record
from benchmarks.oracle.replay import Replay, cheapest_size, follows, needs
from benchmarks.workloads.base import Call, Flow, LoadedProgram, Program, Tensors, TensorSpec, Workload
from dyorc.errors import InvalidInputError
from dyorc.traffic.arrivals import Poisson

VECTOR = TensorSpec(dtype="float32", shape=(4,))
SIZES = (1, 2, 4, 8)
COSTS = {
    "small": [(size, 0.002 + 0.0005 * size) for size in SIZES],
    "large": [(size, 0.008 + 0.001 * size) for size in SIZES],
    "join": [(size, 0.001 + 0.00025 * size) for size in SIZES],
}


def plus(number: float) -> Callable[[], Callable[..., Tensors]]:
    def make() -> Callable[..., Tensors]:
        return lambda **inputs: {"y": np.asarray(sum(inputs.values()) + np.float32(number))}

    return make


def toy(flow: Flow, replicas: Mapping[str, int] | None = None) -> Workload:
    programs = {
        name: Program(make=plus(at), inputs=dict.fromkeys(inputs, VECTOR), outputs={"y": VECTOR}, max_batch_size=8)
        for at, (name, inputs) in enumerate({"small": ["x"], "large": ["x"], "join": ["a", "b"]}.items())
    }
    return Workload(
        name="toy",
        summary="",
        is_dynamic=True,
        slo_s=1.0,
        inputs={"x": VECTOR},
        outputs={"y": VECTOR},
        programs=programs,
        flow=flow,
        draw=lambda num, seed: [{"x": np.full(4, at % 2, np.float32)} for at in range(num)],
        app="",
        replicas=replicas or {},
    )


async def cascade(call: Call, inputs: Tensors) -> tuple[dict[str, Any], str]:
    found = await call("small", x=inputs["x"])
    return (found, "small") if found["y"][0] < 1 else (await call("large", x=inputs["x"][:]), "large")


async def sequence(call: Call, inputs: Tensors) -> tuple[dict[str, Any], str]:
    found = await call("small", x=inputs["x"])
    return await call("large", x=found["y"][::1]), ""


async def two_strands(call: Call, inputs: Tensors) -> tuple[dict[str, Any], str]:
    """Runs two strands, each of which looks at its first result before its second call; what comes after needs both."""

    async def strand(program: str) -> dict[str, Any]:
        found = await call(program, x=inputs["x"])
        return await call(program, x=found["y"] * 2)

    first, second = await asyncio.gather(strand("small"), strand("large"))
    joined = await call("join", a=first["y"], b=second["y"])
    return await call("small", x=np.full(4, joined["y"].sum(), np.float32)), ""


def trees_of(flow: Flow, num_requests: int = 4) -> Sequence[Tree]:
    workload = toy(flow)
    return record(workload, workload.draw(num_requests, 0)).trees


def test_a_decision_is_not_a_dependency() -> None:
    small, large = RecordedCall("small", (), ()), RecordedCall("large", (), (0,))

    assert trees_of(cascade) == [(small,), (small, large), (small,), (small, large)]


def test_an_output_is_a_dependency() -> None:
    assert trees_of(sequence, 1) == [(RecordedCall("small", (), ()), RecordedCall("large", (0,), (0,)))]


def test_a_computed_value_depends_on_all_that_was_awaited_before() -> None:
    """It does not depend on what another strand of the flow has awaited."""
    [tree] = trees_of(two_strands, 1)

    where = {call.program: [at for at, other in enumerate(tree) if other.program == call.program] for call in tree}
    assert tree[where["small"][1]].needs == (where["small"][0],)
    assert tree[where["large"][1]].needs == (where["large"][0],)
    join = tree[where["join"][0]]
    assert join.needs == join.follows == tuple(sorted((where["small"][1], where["large"][1])))
    assert tree[-1] == RecordedCall("small", (where["join"][0],), (where["join"][0],))


def test_an_output_that_is_the_input_is_another_tensor() -> None:
    async def flow(call: Call, inputs: Tensors) -> tuple[dict[str, Any], str]:
        same = await call("same", x=inputs["x"])
        await call("large", x=same["y"])
        return await call("large", x=inputs["x"]), ""

    workload = toy(flow)
    same = Program(make=lambda: lambda x: {"y": x}, inputs={"x": VECTOR}, outputs={"y": VECTOR}, max_batch_size=8)

    [tree] = record(Workload(**{**vars(workload), "programs": {**workload.programs, "same": same}}), workload.draw(1, 0)).trees

    assert [call.needs for call in tree] == [(), (0,), ()]


def test_inputs_are_recorded() -> None:
    items = record(toy(cascade), toy(cascade).draw(100, 0)).items

    assert len(items["small"]) == 16
    assert all(item["x"][0] == 1 for item in items["large"])
    assert items["join"] == []


def bound(flow: Flow, rate_rps: float, **options: Any) -> Bound:
    return lower_bound(toy(flow), trees_of(flow), COSTS, rate_rps, **{"num_requests": 600, **options})


@pytest.mark.parametrize(
    ("flow", "p50_ms"),
    [
        (sequence, 2.5 + 9.0),
        (two_strands, 9.0 + 9.0 + 1.25 + 2.5),  # the path through `large`
    ],
)
def test_one_request_at_a_time_takes_its_critical_path(flow: Flow, p50_ms: float) -> None:
    found = bound(flow, 0.01, num_requests=50)

    assert (found.p50_ms, found.p99_ms) == (pytest.approx(p50_ms), pytest.approx(p50_ms))
    assert found.mean_batch_size == 1


def test_the_cascade_is_as_computed_by_hand() -> None:
    """Half of the requests take T(1) of `small`; the others take that of `large` beside it. On one core they take both."""
    wide, narrow = bound(cascade, 0.01, num_requests=50), bound(cascade, 0.01, num_requests=50, num_cores=1)

    assert wide.p99_ms == pytest.approx(9.0)
    assert 2.5 <= wide.p50_ms <= 9.0
    assert wide.device_ms_per_request == pytest.approx(2.5 + 9.0 / 2)
    assert narrow.p99_ms == pytest.approx(2.5 + 9.0)


@pytest.mark.parametrize("flow", [cascade, sequence, two_strands])
@pytest.mark.parametrize("load", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("can_hold", [False, True])
def test_no_policy_without_foresight_is_below_the_line(flow: Flow, load: float, can_hold: bool) -> None:
    workload, trees = toy(flow), trees_of(flow)
    rate_rps = load * saturation_rps(workload, trees, COSTS)
    times_ns = Poisson().times_ns(600, rate_rps, np.random.default_rng(5)).tolist()

    blind = simulated(workload, Replay.of(trees, COSTS, follows), times_ns, len(trees), can_hold, 2)
    least = lower_bound(workload, trees, COSTS, rate_rps, num_requests=600, seed=5)

    assert least.p50_ms <= blind.p50_ms
    assert least.p99_ms <= blind.p99_ms
    assert least.device_ms_per_request <= blind.device_ms_per_request


def test_foresight_lowers_latency() -> None:
    workload, trees = toy(cascade), trees_of(cascade)
    times_ns = Poisson().times_ns(600, 100, np.random.default_rng(5)).tolist()

    knowing, blind = (simulated(workload, Replay.of(trees, COSTS, edges), times_ns, 4, False, 2) for edges in (needs, follows))

    assert knowing.p99_ms < 0.95 * blind.p99_ms


def test_batches_grow_with_the_rate_and_requests_cost_less() -> None:
    limit_rps = saturation_rps(toy(cascade), trees_of(cascade), COSTS)
    bounds = [bound(cascade, load * limit_rps) for load in (0.01, 0.3, 0.6, 0.9)]

    assert all(low.mean_batch_size < high.mean_batch_size for low, high in itertools.pairwise(bounds))
    assert all(low.device_ms_per_request > high.device_ms_per_request for low, high in itertools.pairwise(bounds))
    assert all(low.p50_ms < high.p50_ms for low, high in itertools.pairwise(bounds[1:]))


def test_saturation_is_that_of_the_cores_or_of_the_busiest_program() -> None:
    """Full batches: 6 ms / 8 for each request, and 16 ms / 8 for every other one."""
    trees = trees_of(cascade)
    assert calls_per_request(trees) == {"small": 1.0, "large": 0.5}

    assert saturation_rps(toy(cascade), trees, COSTS, num_cores=1) == pytest.approx(1 / 0.00175)
    assert saturation_rps(toy(cascade), trees, COSTS, num_cores=2) == pytest.approx(1 / 0.001)  # `large`
    assert saturation_rps(toy(cascade, {"large": 2}), trees, COSTS, num_cores=2) == pytest.approx(2 / 0.00175)


def test_batches_are_no_larger_than_is_useful() -> None:
    dear = [(1, 0.001), (2, 0.0015), (4, 0.01)]
    assert cheapest_size(dear) == 2
    assert cheapest_size([(1, 0.001), (2, 0.002)]) == 2

    found = lower_bound(toy(sequence), trees_of(sequence), {"small": dear, "large": dear}, 2000, num_requests=300)

    assert 1.9 < found.mean_batch_size <= 2


def test_the_error_names_what_was_not_measured() -> None:
    with pytest.raises(KeyError, match="large"):
        lower_bound(toy(sequence), trees_of(sequence), {"small": COSTS["small"]}, 10)
    with pytest.raises(InvalidInputError, match="'small'"):
        lower_bound(toy(sequence), trees_of(sequence), COSTS | {"small": [(2, 0.001), (4, 0.0011)]}, 10)


def test_the_same_seed_gives_the_same_line() -> None:
    assert bound(cascade, 200) == bound(cascade, 200)
    assert bound(cascade, 200) != bound(cascade, 200, seed=1)


def test_sizes_to_measure_are_spread() -> None:
    assert [batch_sizes(size) for size in (1, 2, 8, 24)] == [[1], [1, 2], [1, 2, 4, 8], [1, 2, 4, 8, 16, 24]]


def test_times_do_not_fall() -> None:
    assert rising([(1, 1.0), (2, 3.0), (4, 2.0), (8, 4.0)]) == [(1, 1.0), (2, 2.5), (4, 2.5), (8, 4.0)]


def test_only_the_program_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Excludes padding and stacking: on this clock, an item takes its program 1 ms, and a batch takes 1 s besides."""
    now_s = [0.0]
    run_items = LoadedProgram.run_items

    def run_slowly(self: LoadedProgram, items: Sequence[Tensors]) -> list[dict[str, np.ndarray[Any, Any]]]:
        now_s[0] += 1.0
        return run_items(self, items)

    def slow() -> Callable[..., Tensors]:
        def run(x: np.ndarray[Any, Any]) -> Tensors:
            now_s[0] += 0.001 * len(x)
            return {"y": x}

        return run

    monkeypatch.setattr(LoadedProgram, "run_items", run_slowly)
    monkeypatch.setattr("benchmarks.oracle.costs.time.thread_time", lambda: now_s[0])
    monkeypatch.setattr("benchmarks.oracle.costs._MIN_S", 0.0)
    monkeypatch.setattr("benchmarks.oracle.costs._WARM_UP_S", 0.0)
    workload = toy(sequence)
    programs = {"small": Program(make=slow, inputs={"x": VECTOR}, outputs={"y": VECTOR}, max_batch_size=3)}
    workload = Workload(**{**vars(workload), "programs": workload.programs | programs})

    costs = measure(workload, num_requests=4)

    assert costs["small"] == [(1, pytest.approx(0.001)), (2, pytest.approx(0.002)), (3, pytest.approx(0.003))]
    assert "join" not in costs
    assert parsed({"small": [[1, 0.5]]}) == {"small": [(1, 0.5)]}
