"""Cluster files: what they say, and what is wrong with them."""

from dataclasses import replace
from pathlib import Path

import pytest

from dyorc.errors import PlanError
from dyorc.planner.cluster import (
    Cluster,
    Contention,
    cluster_from_toml,
    cluster_to_toml,
    even_cluster,
    load_cluster,
    published,
    published_names,
    uneven_cluster,
    write_cluster,
)
from dyorc.planner.plan import Algorithm, CollectiveKind

_UNEVEN = uneven_cluster([3, 1])
_CONTENDING = replace(
    _UNEVEN,
    devices=tuple(replace(device, view_s=2e-6) for device in _UNEVEN.devices),
    contention=Contention(computing=1.25, communicating=1.6, waiting_s=5e-4),
)
_FILE = """\
name = "two machines"

[[machines]]
name = "left"
inside = { bytes_per_s = 48e9, latency_s = 5e-6 }

[[machines.devices]]
name = "V100"
count = 2
flops_per_s = 1.4e13
memory_bytes = 16e9

[[machines]]
name = "right"

[[machines.devices]]
name = "P100"
flops_per_s = 9e12
memory_bytes = 12_000_000_000
memory_bytes_per_s = 7e11

[[links]]
between = ["left", "right"]
bytes_per_s = 1.25e9
latency_s = 3e-5

[[collectives]]
kind = "all_gather"
bytes_per_s = 8e8
latency_s = 1e-4
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(_FILE)
    cluster = load_cluster(path)
    assert [(device.name, device.machine) for device in cluster.devices] == [("V100", "left")] * 2 + [("P100", "right")]
    assert cluster.devices[0].memory_bytes == 16_000_000_000
    assert cluster.transfer_s(2, 0, 1_250_000_000) == pytest.approx(1.00003)
    assert cluster.transfer_s(0, 1, 48_000_000_000) == pytest.approx(1.000005)
    gather = cluster.collective_s(CollectiveKind.ALL_GATHER, Algorithm.PADDED, range(3), [10**6, 2 * 10**6, 0])
    assert gather == pytest.approx(1e-4 + 6e6 / 8e8)
    assert cluster_from_toml(_FILE).digest == cluster.digest


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("flops_per_s = 9e12\n", "", r"line 16: machines\.devices\.flops_per_s \(P100\) is missing: a number above 0"),
        ("flops_per_s = 9e12", "flops_per_s = 0", r"line 18: .*flops_per_s \(P100\) must be a number above 0, and not 0"),
        ("flops_per_s = 9e12", "flops_per_s = nan", r"line 18: .*a number above 0, and not nan"),
        ("flops_per_s = 9e12", "flops = 9e12\nflops_per_s = 9e12", r"line 18: machines\.devices\.flops \(P100\) is unknown"),
        ("count = 2", "count = 1.5", r"line 9: machines\.devices\.count \(V100\) must be a whole number above 0, and not 1\.5"),
        ('inside = { bytes_per_s = 48e9, latency_s = 5e-6 }\n', "", r"line 3: machines\.inside \(left\) is missing: the link"),
        ("bytes_per_s = 48e9", "speed = 48e9", r"line 5: machines\.inside\.bytes_per_s is missing"),
        ('["left", "right"]', '["left", "wrong"]', r"line 23: links\.between must be names of machines, .* 'wrong' is none"),
        ('["left", "right"]', '["left"]', r"line 23: links\.between must be the names of two machines"),
        ('name = "right"', 'name = "left"', r"line 14: machines\.name \(left\) must be unique"),
        ('name = "right"', "", r"line 13: machines\.name is missing: a text"),
        ('kind = "all_gather"', 'kind = "gather"', r"line 28: collectives\.kind must be one of all_reduce, .* and not 'gather'"),
        ('kind = "all_gather"', 'kind = "all_gather"\ndevices_by_machine = [1]', r"line 29: .*at least 2 devices together"),
        ("[[collectives]]", "[contention]\ncomputing = 0.5\ncommunicating = 2\n[[x]]", r"line 28: .*1, and not 0.5"),
        ('name = "two machines"', "name = two machines", r"is no TOML: .*line 1"),
        ('name = "two machines"', 'name = "x"\nmachine = 1', r"line 2: machine \(x\) is unknown; known are channels, coll"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_line_and_what_was_expected(old: str, new: str, error: str) -> None:
    assert old in _FILE
    with pytest.raises(PlanError, match=error):
        cluster_from_toml(_FILE.replace(old, new), "cluster.toml")


def test_a_missing_link_is_named() -> None:
    with pytest.raises(PlanError, match=r'links \(two machines\) is missing: one with between = \["left", "right"\]'):
        cluster_from_toml(_FILE[: _FILE.index("[[links]]")])
    every = _FILE.replace('["left", "right"]', '"all"')
    one, other = cluster_from_toml(every), cluster_from_toml(_FILE)
    assert one.transfer_s(2, 0, 10**6) == other.transfer_s(2, 0, 10**6)
    assert one.transfer_s(0, 1, 10**6) == other.transfer_s(0, 1, 10**6) < one.transfer_s(2, 0, 10**6)


def test_a_link_between_two_machines_goes_before_the_one_between_all() -> None:
    slow = '[[links]]\nbetween = "all"\nbytes_per_s = 1\n\n[[links]]\nbetween = ["left"'
    cluster = cluster_from_toml(_FILE.replace('[[links]]\nbetween = ["left"', slow))
    assert cluster.transfer_s(2, 0, 10**6) == cluster_from_toml(_FILE).transfer_s(2, 0, 10**6)


def test_a_cluster_of_thousands_of_machines_is_described_in_a_few_lines() -> None:
    cluster = even_cluster(3000)
    assert cluster.links == ()
    assert cluster_to_toml(cluster).count("[[links]]") == 1
    assert cluster.transfer_s(0, 2999, 10**9) == pytest.approx(1 + 1e-5)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"cluster file .*absent\.toml cannot be read: .*No such file"):
        load_cluster(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    "cluster",
    [*map(published, published_names()), even_cluster(3, latency_s=1 / 3e5), _CONTENDING],
    ids=lambda cluster: cluster.name,
)
def test_what_is_written_is_read_to_the_last_digit(cluster: Cluster, tmp_path: Path) -> None:
    write_cluster(cluster, tmp_path / "cluster.toml")
    again = load_cluster(tmp_path / "cluster.toml")
    assert again.digest == cluster.digest
    assert (again.name, again.source) == (cluster.name, cluster.source)
    assert cluster_to_toml(again) == cluster_to_toml(cluster)
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.toml"]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("flops_per_s = 9e12", "flops_per_s = 1e-300", r"line 18: .*flops_per_s \(P100\) must be a number from 0.001 to 1e\+30"),
        ("flops_per_s = 9e12", "flops_per_s = 1e300", r"line 18: .*flops_per_s \(P100\) must be .* and not 1e\+300"),
        ("flops_per_s = 9e12", "flops_per_s = nan", r"line 18: .*flops_per_s \(P100\) must be a number above 0, and not nan"),
        ("flops_per_s = 9e12", "flops_per_s = inf", r"line 18: .*flops_per_s \(P100\) must be a number above 0, and not inf"),
        ("flops_per_s = 9e12", f"flops_per_s = 1{'0' * 400}", r"line 18: .*must be .* and not a number of .* digits"),
        ("memory_bytes = 12_000_000_000", "memory_bytes = 0", r"line 19: .*memory_bytes \(P100\) must be a whole number above 0"),
        ("memory_bytes = 12_000_000_000", "memory_bytes = 1e300", r"line 19: .*memory_bytes \(P100\) must be a whole number, "),
        ("count = 2", "count = 1e300", r"line 9: .*count \(V100\) must be a whole number, 1,048,576 at most"),
        ("bytes_per_s = 1.25e9", "bytes_per_s = -1.25e9", r"links\.bytes_per_s must be a number above 0, and not -1250000000"),
        ("latency_s = 3e-5", "latency_s = 1e300", r"links\.latency_s must be a number from 0 to 1e\+09, and not 1e\+300"),
        ("latency_s = 1e-4", "latency_s = inf", r"collectives\.latency_s must be a number, 0 or above, and not inf"),
        ("bytes_per_s = 8e8", "s_per_byte = 1e300", r"collectives\.s_per_byte must be a number from 0 to 1e\+09"),
        ("bytes_per_s = 8e8", "bytes_per_s = 8e8\nat_bytes_per_s = 1e-300", r"at_bytes_per_s must be a number from 0.001"),
        ("[[links]]", f"[[links]]\nx = 1{'0' * 5000}", "cluster is no TOML: .*digits"),
    ],
)
def test_figures_that_no_machine_can_have_are_refused_by_name(old: str, new: str, error: str) -> None:
    with pytest.raises(PlanError, match=error):
        cluster_from_toml(_FILE.replace(old, new, 1))


@pytest.mark.parametrize("speed", [0.0, -1.0, 1e-300, 1e300, float("nan"), float("inf")])
def test_devices_and_links_refuse_such_figures_themselves(speed: float) -> None:
    with pytest.raises(PlanError, match=r"device .* on machine-1: flops_per_s must be a number from 0\.001 to 1e\+30, and not"):
        uneven_cluster([1.0, speed])
    with pytest.raises(PlanError, match="link between all machines: bytes_per_s must be a number from"):
        even_cluster(2, bytes_per_s=speed)
    with pytest.raises(PlanError, match="memory_bytes must be a number from 1 to"):
        even_cluster(2, memory_bytes=0)
    with pytest.raises(PlanError, match="latency_s must be a number from 0 to"):
        even_cluster(2, latency_s=1e300)
