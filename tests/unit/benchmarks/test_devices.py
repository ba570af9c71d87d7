"""Emulated accelerators: how long they are occupied, what they return, and what their times are."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from benchmarks import meter
from benchmarks.devices import program as device_module
from benchmarks.devices.device import Device
from benchmarks.devices.program import DeviceProgram
from benchmarks.devices.recorded import Recorded, key_of
from benchmarks.devices.recording import record
from benchmarks.devices.times import DeviceTime, fitted, on_devices
from benchmarks.workloads import NAMES, workload
from benchmarks.workloads.base import LoadedProgram, Program, TensorSpec, Workload, probes
from loadgen.pool import Pool
from tests.deadlines import TIMEOUT_S

TIME = DeviceTime(0.010, 0.001)
VECTOR = TensorSpec(dtype="float32", shape=(-1,))


class Clock:
    """A clock that only moves when somebody sleeps, or is told to; every sleep ends a little late."""

    def __init__(self, late_ns: int = 5_000) -> None:
        self.now_ns = 0
        self.num_sleeps = 0
        self._late_ns = late_ns

    def sleep(self, seconds: float) -> None:
        self.num_sleeps += 1
        self.now_ns += round(seconds * 1e9) + self._late_ns


def device(folder: Path, clock: Clock, name: str = "lock") -> Device:
    file = folder / name
    file.touch()
    return Device(TIME, file, lambda: clock.now_ns, clock.sleep)


def plus_one(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": x + 1}


def toy(**changes: object) -> Workload:
    async def flow(call, inputs):
        return await call("add", x=inputs["x"]), "all"

    facts = {"make": lambda: plus_one, "inputs": {"x": VECTOR}, "outputs": {"y": VECTOR}, "max_batch_size": 8}
    return Workload(
        name="toy",
        summary="",
        is_dynamic=False,
        slo_s=1.0,
        inputs={"x": VECTOR},
        outputs={"y": VECTOR},
        programs={"add": Program(**(facts | changes))},
        flow=flow,
        draw=lambda number, seed: [{"x": np.array([at + 1.0, 2.0], np.float32)} for at in range(number)],
        app="",
    )


def test_a_batch_occupies_its_device_for_base_and_items(tmp_path: Path) -> None:
    clock = Clock(late_ns=2_000)
    one = device(tmp_path, clock)
    with one.batch(4):
        clock.now_ns += 3_000_000  # preparing the results is part of the time
    assert 14_000_000 <= clock.now_ns <= 14_000_000 + 4_000
    assert one.busy_ns == clock.now_ns
    with one.batch(1):
        pass
    assert 25_000_000 <= clock.now_ns <= 25_000_000 + 8_000
    one.close()


def test_most_of_the_time_is_slept_through(tmp_path: Path) -> None:
    clock = Clock(late_ns=10_000)
    one = device(tmp_path, clock)
    with one.batch(30):
        pass
    assert clock.num_sleeps <= 1 + 50_000 // 10_000
    one.close()


def test_a_batch_that_takes_longer_than_its_device_is_not_delayed_further(tmp_path: Path) -> None:
    clock = Clock()
    one = device(tmp_path, clock)
    with one.batch(1):
        clock.now_ns += 50_000_000
    assert (clock.now_ns, clock.num_sleeps) == (50_000_000, 0)
    one.close()


def test_processes_of_a_server_share_a_device(tmp_path: Path) -> None:
    clock = Clock()
    one, other = device(tmp_path, clock), device(tmp_path, clock)  # each has opened the file for itself, as a process does
    entered = threading.Event()

    def use() -> None:
        with other.batch(1):
            entered.set()

    thread = threading.Thread(target=use)
    with one.batch(1):
        thread.start()
        assert not entered.wait(0.05)
    assert entered.wait(TIMEOUT_S)
    thread.join()
    apart = device(tmp_path, clock, "another")
    with one.batch(1), apart.batch(1):
        pass
    for each in (one, other, apart):
        each.close()


def test_a_line_is_fitted_to_published_times() -> None:
    assert fitted([(1, 12.0), (2, 14.0), (8, 26.0)]) == DeviceTime(0.010, 0.002)
    assert fitted([(1, 2.0), (2, 5.0), (4, 11.0)]).base_s == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_each_program_has_a_published_time(name: str) -> None:
    found = on_devices(name)
    assert set(found.models) == set(workload(name).programs)
    alone_s = max(time.batch_s(1) for time in found.times.values())
    assert 0 < 2 * alone_s < found.slo_s
    for model in found.models.values():
        assert model.source
        assert model.max_deviation < 0.25


def test_padding_does_not_change_a_key() -> None:
    line = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    padded = np.pad(line, [(0, 0), (0, 0), (0, 5)])
    assert key_of({"line": line}, True) == key_of({"line": padded}, True)
    assert key_of({"line": line}, False) != key_of({"line": padded}, False)
    assert key_of({"line": line}, True) != key_of({"line": line + 1}, True)


def test_large_inputs_are_told_apart_by_a_sample() -> None:
    one = np.full(100_000, 0.5, np.float32)
    assert key_of({"x": one}, False) != key_of({"x": one * 2}, False)
    assert len(key_of({"x": one}, False)) < 10_000


def test_strings_have_keys_too() -> None:
    assert key_of({"text": np.array(b"hello", object)}, False) == b"hello"


def test_recorded_results_survive_a_file(tmp_path: Path) -> None:
    item = {"x": np.array([1.0, 2.0], np.float32)}
    Recorded({key_of(item, False): {"y": np.array([3.0], np.float32), "text": np.array(b"three", object)}}).save(
        tmp_path / "a.npz"
    )
    found = Recorded.load(tmp_path / "a.npz").outputs(item, False)
    assert found["y"].tolist() == [3.0]
    assert found["text"].item() == b"three"


def test_unknown_inputs_get_another_result() -> None:
    known = {"x": np.array([1.0], np.float32)}
    recorded = Recorded({key_of(known, False): {"y": np.array([3.0], np.float32)}})
    guessed = {"x": np.array([9.0], np.float32)}
    assert recorded.knows(known, False)
    assert not recorded.knows(guessed, False)
    assert recorded.outputs(guessed, False)["y"].tolist() == [3.0]


def test_two_results_for_one_input_cannot_be_recorded(tmp_path: Path) -> None:
    results = iter([1.0, 2.0])

    def changing(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": x + next(results)}

    same = {"x": np.array([1.0], np.float32)}
    with pytest.raises(ValueError, match="same key"):
        record(toy(make=lambda: changing), Pool(inputs=[same, same]), tmp_path)


def test_a_program_writes_where_it_is_told_to(tmp_path: Path) -> None:
    clock = Clock()
    rows = [{"x": np.array([at], np.float32)} for at in (1.0, 2.0)]
    recorded = Recorded({key_of(row, False): {"y": row["x"] * 10} for row in rows})
    one = DeviceProgram(toy().programs["add"], recorded, device(tmp_path, clock))
    stacked = np.array([[2.0], [1.0]], np.float32)
    assert one(x=stacked)["y"].tolist() == [[20.0], [10.0]]
    out = np.zeros((2, 1), np.float32)
    assert one(x=stacked, out=out)["y"] is out
    assert out.tolist() == [[20.0], [10.0]]
    one.device.close()


def test_the_environment_replaces_a_program_by_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = toy()
    requests = served.draw(3, 0)
    recordings, devices, counted = (tmp_path / name for name in ("recordings", "devices", "meter"))
    for folder in (recordings, devices, counted):
        folder.mkdir()
    record(served, Pool(inputs=requests), recordings)
    (recordings / device_module.TIMES_FILE).write_text(json.dumps({"add": (0.004, 0.001)}))
    monkeypatch.setenv(device_module.FOLDER_VARIABLE, str(recordings))
    monkeypatch.setenv(device_module.DEVICES_VARIABLE, str(devices))
    monkeypatch.setenv(meter.FOLDER_VARIABLE, str(counted))

    loaded = LoadedProgram(toy(make=lambda: pytest.fail("the model was loaded")), "add")
    found = loaded.run_items(requests[:2])

    assert [each["y"].tolist() for each in found] == [[2.0, 3.0], [3.0, 3.0]]
    seconds, sizes = meter.read(counted)["add"]
    assert sizes == {2: 1}
    assert seconds >= 0.006
    assert [each["x"].tolist() for each in probes(served, 2)] == [each["x"].tolist() for each in requests[:2]]
    loaded.close()
