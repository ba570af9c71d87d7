"""The catalogue of metrics, and how values of several processes become what Prometheus reads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from dyorc.engine.estimators import Histogram
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.__main__ import page
from dyorc.telemetry.metrics.catalogue import BY_NAME, CATALOGUE
from dyorc.telemetry.metrics.exposition import exposition
from dyorc.telemetry.metrics.metric import OTHER, BoundedLabels, Combine, MetricKind
from dyorc.telemetry.metrics.metric_sources import ReplicaProcesses, usage_of
from dyorc.telemetry.metrics.readings import Readings

LABELS = {"workflow", "program", "outcome", "tenant", "reason", "tier", "state", "transport", "version", "python", "group"}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_DOCS = Path(__file__).parents[3] / "docs" / "reference"


def test_names_and_labels_follow_the_conventions_of_prometheus() -> None:
    assert len(BY_NAME) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert re.fullmatch(r"dyorc_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER), metric.name
        assert not re.search(r"_(ms|ns|milliseconds|count|sum|bucket|s)$", metric.name), metric.name
        assert set(metric.labels) <= LABELS, metric.name
        assert metric.help.endswith(".")
        assert bool(metric.bounds) is (metric.kind is MetricKind.HISTOGRAM)
        assert list(metric.bounds) == sorted(metric.bounds)
        assert metric.combine is Combine.SUM or metric.kind is MetricKind.GAUGE, "counters of processes are added up"


def test_the_page_of_metrics_is_made_of_the_catalogue() -> None:
    assert (_DOCS / "metrics.md").read_text() == page(), "run `make docs-metrics`"


# Several processes


def of_two() -> Readings:
    first, second = Readings(), Readings()
    for readings, number in ((first, 1), (second, 10)):
        readings.add(catalogue.REQUESTS, number, "flow", "ok")
        readings.add(catalogue.ARENA_FILL, number / 10)
        histogram = Histogram([int(bound) for bound in catalogue.BATCH_SIZE.bounds])
        histogram.add(2, number)
        readings.add_histogram(catalogue.BATCH_SIZE, histogram, "program")
    second.add(catalogue.REQUESTS, 5, "flow", "deadline")
    first.merge(second.as_values())
    return first


def test_values_of_processes_become_one_as_the_metric_says() -> None:
    both = of_two()
    assert both.of(catalogue.REQUESTS) == {("flow", "ok"): 11, ("flow", "deadline"): 5}
    assert both.of(catalogue.ARENA_FILL) == {(): 1.0}
    assert both.of(catalogue.BATCH_SIZE) == {("program",): [0, 11, *[0] * 8, 22]}


def test_what_a_process_leaves_behind_has_no_gauges() -> None:
    left = Readings(only_counted=True)
    left.add(catalogue.REQUESTS_IN_FLIGHT, 3, "flow")
    left.add(catalogue.CELL_STARTS, 1)
    assert left.as_values() == {"dyorc_cell_starts_total": [[[], 1]]}


def test_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dyorc_requests_total got the labels \('flow',\), expected values of .*'outcome'"):
        Readings().add(catalogue.REQUESTS, 1, "flow")


# What Prometheus reads


@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_every_metric_is_shown_in_both_formats(accept: str, parse: object) -> None:
    readings = of_two()
    for metric in CATALOGUE:
        values = [f'a "quoted" {label}\n\\' for label in metric.labels]
        if metric.kind is MetricKind.HISTOGRAM:
            histogram = Histogram(metric.bounds)
            histogram.add(3)
            readings.add_histogram(metric, histogram, *values)
        else:
            readings.add(metric, 3, *values)
    text, content_type = exposition(readings, accept)
    assert content_type.startswith(accept or "text/plain; version=0.0.4")
    assert callable(parse)
    samples = {sample.name: sample for family in parse(text.decode()) for sample in family.samples}
    for metric in CATALOGUE:
        for name in metric.series:
            assert set(samples[name].labels) - {"le"} == set(metric.labels)


def test_a_histograms_buckets_are_cumulative() -> None:
    text = exposition(of_two(), "")[0].decode()
    assert 'dyorc_batch_size_bucket{le="1.0",program="program"} 0.0\n' in text
    assert 'dyorc_batch_size_bucket{le="2.0",program="program"} 11.0\n' in text
    assert 'dyorc_batch_size_bucket{le="+Inf",program="program"} 11.0\n' in text
    assert 'dyorc_batch_size_sum{program="program"} 22.0\n' in text


# Labels of any origin


def test_only_so_many_names_are_told_apart_and_none_ever_moves() -> None:
    bounded = BoundedLabels(2)
    assert [bounded.label_of(name) for name in ("a", "b", "c", "a", "d", "c")] == ["a", "b", OTHER, "a", OTHER, OTHER]


# Processes


def test_the_processor_time_of_a_replica_that_has_ended_stays_counted() -> None:
    processes = ReplicaProcesses()
    burn = "import sys; sum(range(10**7)); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as replica:
        assert replica.stdout is not None
        replica.stdout.readline()
        usage = usage_of(replica.pid)
        assert usage is not None
        assert usage.cpu_s > 0
        assert usage.resident_bytes > 2**20
        assert usage.num_files >= 3
        first = Readings()
        processes.read({"program": {replica.pid}}, first)
    later = Readings()
    processes.read({"program": {replica.pid}}, later)
    (before,), (after,) = (each.of(catalogue.REPLICA_CPU).values() for each in (first, later))
    assert after == before > 0
    assert later.of(catalogue.REPLICA_MEMORY) == {("program",): 0}


def test_only_metrics_of_residents_say_resident() -> None:
    """What the system counts as resident memory is called memory."""
    assert {metric.group for metric in CATALOGUE if "resident" in metric.name} == {"Residents"}
