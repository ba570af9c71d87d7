"""The rounds of a measurement become cells of the table."""

import pytest
from hdrh.histogram import HdrHistogram

from benchmarks.table.cells import cell_of
from benchmarks.table.records import OracleRecord
from loadgen.results import ServerFigures
from tests.unit.loadgen.made_results import result


def figures(batch_sizes: dict[str, dict[str, int]], device_ms: dict[str, float]) -> ServerFigures:
    return ServerFigures(batch_sizes=batch_sizes, device_ms_per_request=device_ms)


def test_figures_are_medians_and_counts_are_sums() -> None:
    rounds = [
        result(
            median_ms=4.0, server=ServerFigures(batch_sizes={"small": {"1": 5, "10": 1}}, device_ms_per_request={"small": 1.0})
        ),
        result(
            median_ms=8.0, wrong=2, server=ServerFigures(batch_sizes={"small": {"2": 3}}, device_ms_per_request={"small": 3.0})
        ),
        result(median_ms=5.0, client_warning="late", server=figures({"large": {"1": 1}}, {"small": 1.0, "large": 1.0})),
    ]
    cell = cell_of("cascade", "low", dict(enumerate(rounds)), OracleRecord(p50_ms=2.0, p99_ms=4.0, device_ms_per_request=0.5), {})
    assert (cell.workload, cell.system, cell.load) == ("cascade", "dyorc", "low")
    assert cell.p50_ms == rounds[2].latency_ms.p50
    assert cell.p50s_ms == [one.latency_ms.p50 for one in rounds]
    assert cell.p99s_ms == [one.latency_ms.p99 for one in rounds]
    assert cell.p50_vs_oracle == pytest.approx(cell.p50_ms / 2.0)
    assert cell.device_ms_per_request == 2.0
    assert cell.batch_sizes == {"small": {"1": 5, "2": 3, "10": 1}, "large": {"1": 1}}
    assert (cell.wrong, cell.num_requests, cell.is_client_limited) == (2, 6000, True)
    assert HdrHistogram.decode(cell.histogram).get_total_count() == 6000


def test_without_an_oracle_there_is_no_ratio_to_it() -> None:
    cell = cell_of("cascade", "low", {0: result()}, None, {})
    assert cell.p50_vs_oracle is None
