"""The counts of programs' batches and of processor time."""

import time
from pathlib import Path

import pytest

from benchmarks import meter
from benchmarks.meter import Meter


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(meter.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def burn(seconds: float) -> float:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
    return seconds


def test_batches_and_processor_time_are_counted_over_all_copies(folder: Path) -> None:
    first, second, _ = Meter("small"), Meter("small"), Meter("large")
    assert first.run(burn, 3, seconds=0.01) == 0.01
    second.run(burn, 3, seconds=0.01)
    second.run(burn, 1_000, seconds=0.0)
    counted = meter.read(folder)
    seconds, sizes = counted["small"]
    assert 0.02 <= seconds < 0.2, "processor time, whatever else the machine does"
    assert sizes == {3: 2, meter.MAX_SIZE: 1}
    assert counted["large"] == (0.0, {})


def test_waiting_does_not_count_as_device_time(folder: Path) -> None:
    def wait() -> None:
        time.sleep(0.05)

    Meter("small").run(wait, 1)
    assert meter.read(folder)["small"][0] < 0.02


def test_a_batch_that_raises_is_counted(folder: Path) -> None:
    def fail() -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        Meter("small").run(fail, 2)
    assert meter.read(folder)["small"][1] == {2: 1}


def test_a_measurement_is_the_difference_of_two_readings(folder: Path) -> None:
    one = Meter("small")
    one.run(burn, 2, seconds=0.001)
    before = meter.read(folder)
    one.run(burn, 2, seconds=0.001)
    one.run(burn, 5, seconds=0.001)
    Meter("new").run(burn, 1, seconds=0.0)
    found = meter.difference(before, meter.read(folder))
    assert found["small"][1] == {2: 1, 5: 1}
    assert found["new"][1] == {1: 1}
    assert 0.002 <= found["small"][0] < before["small"][0] + 0.1


def test_nothing_is_counted_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(meter.FOLDER_VARIABLE, raising=False)
    assert Meter("small").run(burn, 1, seconds=0.0) == 0.0
