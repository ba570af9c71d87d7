"""Reads what an engine has counted of workflows and programs."""

from dyorc.engine.engine_statistics import EngineStatistics, ModelRecord
from dyorc.engine.tallies import ModelStatistics
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.metric import Metric
from dyorc.telemetry.metrics.readings import Readings

_S_PER_NS = 1e-9
OK = "ok"
"""The outcome of requests and calls that did not fail."""


def read_statistics(statistics: EngineStatistics, readings: Readings) -> None:
    """Adds what was counted of workflows and programs."""
    for name, record in statistics.workflows.items():
        _read_workflow(name, record, readings)
    for name, record in statistics.programs.items():
        _read_program(name, record, readings)


def _read_workflow(name: str, record: ModelRecord, readings: Readings) -> None:
    totals = record.totals(0)
    _read_outcomes(catalogue.REQUESTS, name, record, totals, readings)
    readings.add_histogram(catalogue.REQUEST_DURATION, record.latency, name, scale=_S_PER_NS)
    for code, number in record.effect_failures.items():
        readings.add(catalogue.EFFECT_FAILURES, number, name, code)
    readings.add(catalogue.WORKFLOW_CALLS, totals.queue.count, name)
    readings.add(catalogue.WORKFLOW_QUEUE, totals.queue.ns * _S_PER_NS, name)
    readings.add(catalogue.WORKFLOW_COMPUTE, totals.compute_infer.ns * _S_PER_NS, name)
    readings.add(catalogue.REPLAYS, record.num_replays, name)
    guesses = record.guesses
    readings.add(catalogue.WORKFLOW_GUESSES, guesses.num_made, name)
    readings.add(catalogue.WORKFLOW_COMMITTED, guesses.num_committed, name)
    readings.add(catalogue.WORKFLOW_SQUASHED, guesses.num_squashed, name)
    readings.add(catalogue.WORKFLOW_USEFUL, guesses.useful_s, name)
    readings.add(catalogue.WORKFLOW_WASTED, guesses.wasted_s, name)


def _read_program(name: str, record: ModelRecord, readings: Readings) -> None:
    totals = record.totals(0)
    _read_outcomes(catalogue.CALLS, name, record, totals, readings)
    readings.add_histogram(catalogue.CALL_QUEUE, record.waits, name, scale=_S_PER_NS)
    readings.add_histogram(catalogue.BATCH_DURATION, record.latency, name, scale=_S_PER_NS)
    readings.add_histogram(catalogue.BATCH_SIZE, record.sizes(catalogue.BATCH_SIZE.bounds), name)
    for reason, number in record.reasons.items():
        readings.add(catalogue.BATCHES, number, name, reason.lower())
    tallies = totals.batches.values()
    readings.add(catalogue.BATCH_INPUT, sum(tally.compute_input.ns for tally in tallies) * _S_PER_NS, name)
    readings.add(catalogue.BATCH_INFER, sum(tally.compute_infer.ns for tally in tallies) * _S_PER_NS, name)
    readings.add(catalogue.BATCH_OUTPUT, sum(tally.compute_output.ns for tally in tallies) * _S_PER_NS, name)
    for tier, (num_bytes, took_s) in record.moves.items():
        readings.add(catalogue.MOVED, num_bytes, name, tier)
        readings.add(catalogue.MOVED_TIME, took_s, name, tier)
    guesses, holds = record.guesses, record.holds
    readings.add(catalogue.GUESSES, guesses.num_made, name)
    readings.add(catalogue.GUESSES_COMMITTED, guesses.num_committed, name)
    readings.add(catalogue.GUESSES_SQUASHED, guesses.num_squashed, name)
    readings.add(catalogue.DEVICE_USEFUL, guesses.useful_s, name)
    readings.add(catalogue.DEVICE_WASTED, guesses.wasted_s, name)
    readings.add(catalogue.HELD_BATCHES, holds.num, name)
    readings.add(catalogue.HELD_JOINED, holds.num_joined, name)
    readings.add(catalogue.HELD_TIME, holds.held_ns * _S_PER_NS, name)


def _read_outcomes(metric: Metric, name: str, record: ModelRecord, totals: ModelStatistics, readings: Readings) -> None:
    readings.add(metric, totals.success.count, name, OK)
    for code, number in record.failures.items():
        readings.add(metric, number, name, code)
