"""The rates of the loads, and the systems that are measured at them."""

from benchmarks.serving import Address
from benchmarks.table import rates
from benchmarks.table.page import page
from benchmarks.table.records import Highest, with_workloads
from benchmarks.table.systems import SYSTEMS
from benchmarks.workloads import NAMES, workload
from tests.unit.benchmarks.made_tables import cell, table
from tests.unit.benchmarks.made_tables import workload as record


def test_loads_are_parts_of_the_highest_rate() -> None:
    assert rates.rates_of(100.0) == {"low": 20.0, "medium": 50.0, "high": 80.0}


def test_there_is_a_rate_for_each_workload() -> None:
    known = rates.read_rates()
    assert set(known) == set(NAMES)
    assert all(rps > 0 for rps in known.values())


def test_the_file_is_made_of_the_third_best_rate() -> None:
    cascade = {"dyorc": 90.0, "triton": 123.456, "mosec": 500.0, "bentoml": 3.0}
    found = [Highest(workload="cascade", system=name, rps=rps) for name, rps in cascade.items()]
    written = rates.written(table(highest=[*found, Highest(workload="loop", system="dyorc", rps=7.0)]))
    assert "cascade = 90\nloop = 7\n" in written


def test_of_fewer_than_three_systems_the_slowest_counts_that_kept_the_slo() -> None:
    assert rates.reference_rps([50.0, 0.0, 20.0, 0.0]) == 20.0
    assert rates.reference_rps([0.0, 0.0]) == 0.0


def test_each_system_is_started_and_reached_in_its_own_way() -> None:
    cascade, address = workload("cascade"), Address(host="127.0.0.1", http_port=8000, grpc_port=8001)
    assert SYSTEMS["dyorc"].command(cascade)[1:] == ["-m", "dyorc.cli.main", "serve", cascade.app, "--port", "0"]
    assert SYSTEMS["dyorc"].target(cascade, address).model == "cascade"
    mosec = SYSTEMS["mosec"].command(cascade)
    assert mosec[0].endswith(".venv-peers/mosec/bin/python")
    assert mosec[1:] == ["-m", "benchmarks.peers.mosec.server", "--workload", "cascade", "--port", "0"]
    assert SYSTEMS["mosec"].target(cascade, address).protocol == "raw"
    assert SYSTEMS["ray_throughput"].command(cascade)[-2:] == ["--mode", "throughput"]
    triton = SYSTEMS["triton"].target(cascade, address)
    assert triton.protocol == "benchmarks.peers.triton.client:make_target"
    assert triton.options["workload"] == "cascade"


def test_a_table_keeps_the_workloads_that_were_not_measured_again() -> None:
    old = table(
        workloads=[record("cascade"), record("loop")],
        cells=[cell("dyorc", 9, 9, name="cascade"), cell("dyorc", 8, 8, name="loop")],
        commit="before",
    )
    new = table(workloads=[record("loop"), record("chain")], cells=[cell("dyorc", 1, 1, name="loop")], highest=[])
    merged = with_workloads(new, old)
    assert [one.name for one in merged.workloads] == ["cascade", "loop", "chain"]
    assert sorted((one.workload, one.p50_ms) for one in merged.cells) == [("cascade", 9), ("loop", 1)]
    assert [one.commit for one in merged.workloads] == ["before", "", ""]
    assert "Commit abc123; cascade at before." in page(merged, {})


def test_a_table_of_highest_rates_only_leaves_the_other_figures_as_they_are() -> None:
    old = table(
        workloads=[record("loop")],
        cells=[cell("dyorc", 8, 8, name="loop")],
        highest=[Highest(workload=name, system="dyorc", rps=1.0) for name in ("cascade", "loop")],
        commit="before",
    )
    new = table(workloads=[], cells=[], highest=[Highest(workload="loop", system="dyorc", rps=2.0)])
    merged = with_workloads(new, old)
    assert [(one.workload, one.p50_ms) for one in merged.cells] == [("loop", 8)]
    assert [(one.workload, one.rps, one.commit) for one in merged.highest] == [("loop", 2.0, "abc123"), ("cascade", 1.0, "")]
    assert "loop at before, the highest rates of loop at abc123." in page(merged, {})
