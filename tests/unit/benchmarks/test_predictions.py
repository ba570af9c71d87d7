"""What the simulator says of workloads on emulated accelerators."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.devices.predict import Model, device_kept, model_of, quantiles
from benchmarks.devices.recording import record
from benchmarks.devices.times import DeviceTime, on_devices
from benchmarks.workloads import workload
from dyorc.core.arrays import apply_views
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.results import ServerFigures
from tests.unit.benchmarks.workload_params import WORKLOADS
from tests.unit.loadgen.made_results import result

NUM_DRAWN = {"chain": 2, "ocr": 4, "router": 24}
"""So many that each program is called; 8 of the other workloads."""
GAP_NS = 20_000_000_000


@pytest.fixture(scope="module", autouse=True)
def path() -> Iterator[None]:
    """Apps put folders on the path; here they are taken off it again."""
    before = sys.path.copy()
    yield
    sys.path[:] = before


@pytest.fixture(scope="module", params=WORKLOADS)
def model(request: pytest.FixtureRequest, path: None, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Skipped where a model is not on this machine."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    served = workload(name)
    try:
        record(served, Pool(inputs=served.draw(NUM_DRAWN.get(name, 8), 3), tolerance=served.tolerance), folder)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        pytest.skip(f"{name} cannot run here: {error}")
    return model_of(name, folder)


def test_simulated_requests_take_the_course_of_the_real_ones(model: Model) -> None:
    num_requests = 3 * len(model.pool.inputs)

    found = model.simulate((at * GAP_NS, at) for at in range(num_requests))

    names = model.workflow.signature.outputs.names or tuple(model.pool.answers[0])
    for request_id, tensors in found.answers.items():
        expected = model.pool.answers[(request_id - 1) % len(model.pool.answers)]
        for name, tensor in zip(names, tensors, strict=True):
            answer = apply_views(tensor.data, tensor.views)
            if answer.dtype == object:
                assert answer.tolist() == expected[name].tolist()
            else:
                np.testing.assert_allclose(answer, expected[name], atol=model.pool.tolerance)


def test_a_lone_request_takes_what_its_programs_take(model: Model) -> None:
    if model.workflow.name != "chain":
        pytest.skip("only the chain's calls are known beforehand")

    found = model.simulate(iter([(0, 0)]), link_ns=1_000_000)

    alone_ms = sum(time.batch_s(1) for time in on_devices("chain").times.values()) * 1e3
    assert alone_ms + 2 <= found.ms[1] <= alone_ms + 6.01  # to each of three programs, and back


def test_more_load_takes_longer(model: Model) -> None:
    if model.workflow.name != "chain":
        pytest.skip("enough for one workload")
    few, many = (Load(rate_rps=rate, warm_up_s=0.1, duration_s=1.0) for rate in (10.0, 900.0))

    assert quantiles(model, [few])[1] < quantiles(model, [many])[1]
    assert quantiles(model, [many, many]) == quantiles(model, [many, many])


def test_the_time_that_devices_kept_is_relative_to_the_published_one() -> None:
    times = {"net": DeviceTime(0.010, 0.001)}
    counted = ServerFigures(batch_sizes={"net": {"1": 2, "10": 1}}, device_ms_per_request={"net": 0.021})
    run = result(server=counted)
    planned_ms = 2 * 11 + 20
    assert device_kept({0: run}, times) == pytest.approx(0.021 * run.counts.correct / planned_ms)
    assert device_kept({0: result()}, times) is None
