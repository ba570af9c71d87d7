"""Measures programs and replicas for metrics and the page: load, states, processes and arenas, and the link to them."""

from collections import Counter
from collections.abc import Mapping

from dyorc.answering.tensor_exchange import Tensors
from dyorc.engine.engine import Engine
from dyorc.engine.engine_statistics import EngineStatistics, GuessCounts, ModelRecord
from dyorc.engine.interfaces import Load
from dyorc.models.status import ProgramState, ProgramStatus, ReplicaState, StatusBoard
from dyorc.orchestrator.scaler import Scaler
from dyorc.telemetry.levels import GuessLevels, Levels, ProgramLevels, WorkflowLevels
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.metric_sources import ReplicaProcesses
from dyorc.telemetry.metrics.readings import Readings
from dyorc.transport.arena_file import ArenaUsage


def levels_of(
    engine: Engine, statistics: EngineStatistics, programs: Mapping[str, ProgramStatus], scaler: Scaler, link: Mapping[str, int]
) -> Levels:
    """Returns what every program and workflow is doing now. Cost: looks at every program, replica and request in flight."""
    in_flight = Counter(engine.workflows_in_flight())
    return Levels(
        programs={
            name: _of_program(status, engine.scheduler.load(name), statistics.of_program(name), scaler)
            for name, status in programs.items()
        },
        workflows={
            name: WorkflowLevels(
                in_flight=in_flight[name],
                num_ended=record.num_ended,
                num_failed=record.num_failed,
                latency=list(record.latency.counts),
            )
            for name, record in statistics.workflows.items()
        },
        link=dict(link),
    )


def _of_program(status: ProgramStatus, load: Load, record: ModelRecord, scaler: Scaler) -> ProgramLevels:
    name, counts = status.name, status.counts()
    return ProgramLevels(
        num_queued=load.num_queued,
        num_running=load.num_running,
        num_warm=counts.warm,
        num_parked=counts.parked,
        num_starting=counts.warming + counts.starting,
        num_wanted=status.num_wanted,
        num_parked_wanted=max(0, status.num_processes - status.num_wanted),
        forecast_per_s=scaler.forecast_per_s(name),
        reason=scaler.reason(name),
        fit=load.line,
        num_calls=record.num_ended,
        reasons={reason.lower(): number for reason, number in record.reasons.items()},
        guesses=_of_guesses(record.guesses),
    )


def _of_guesses(guesses: GuessCounts) -> GuessLevels:
    return GuessLevels(
        num_made=guesses.num_made,
        num_committed=guesses.num_committed,
        num_squashed=guesses.num_squashed,
        useful_s=guesses.useful_s,
        wasted_s=guesses.wasted_s,
    )


def read_levels(levels: Levels, engine: Engine, readings: Readings) -> None:
    """Adds requests in flight, and the load of programs as far as only the engine knows it."""
    for name, workflow in levels.workflows.items():
        if workflow.in_flight:
            readings.add(catalogue.REQUESTS_IN_FLIGHT, workflow.in_flight, name)
    for name, number in engine.pending_effects().items():
        readings.add(catalogue.PENDING_EFFECTS, number, name)
    for name, program in levels.programs.items():
        report = engine.scheduler.report(name)
        readings.add(catalogue.QUEUED_CALLS, program.num_queued, name)
        readings.add(catalogue.QUEUED_GUESSES, report["num_guesses_queued"], name)
        readings.add(catalogue.RUNNING_CALLS, program.num_running, name)
        readings.add(catalogue.SUSPECT_CALLS, report["num_suspects"], name)
        readings.add(catalogue.REFUSED_INPUTS, report["num_refused_inputs"], name)
        readings.add(catalogue.REPLICAS_WANTED, program.num_wanted, name)
        if "num_residents" in report:
            readings.add(catalogue.RESIDENTS, report["num_residents"], name)
            readings.add(catalogue.RESIDENT_BYTES, report["resident_bytes"], name)
            readings.add(catalogue.RESIDENTS_EVICTED, report["num_evicted"], name)
            readings.add(catalogue.RESIDENTS_REBUILT, report["num_rebuilt"], name)


class ReplicaMeasuring:
    """Reads replicas' states, processes and arenas. Cost: 0.1 ms per replica of this machine, and its arena's table.

    Args:
        status: What each program's replicas do.
        tensors: Knows this machine and its arenas.
    """

    def __init__(self, status: StatusBoard, tensors: Tensors) -> None:
        self._status = status
        self._tensors = tensors
        self._processes = ReplicaProcesses()

    def read(self, link: Mapping[str, int], readings: Readings) -> None:
        """Adds the figures.

        Args:
            link: What the fleet reports.
        """
        readings.add(catalogue.LINK_SENT, link.get("num_bytes_sent", 0))
        readings.add(catalogue.LINK_RECEIVED, link.get("num_bytes_received", 0))
        programs = self._status.programs
        node = self._tensors.exchange.holder.node
        pids = {
            name: {pid for replica in status.replicas.values() if replica.node == node for pid in replica.pids}
            for name, status in programs.items()
        }
        self._processes.read(pids, readings)
        if readings.only_counted:
            return
        for name, status in programs.items():
            _read_states(name, status, readings)
        self._read_arenas(readings)

    def _read_arenas(self, readings: Readings) -> None:
        usages = self._tensors.usage_of_arenas()
        for holder_id, usage in usages.items():
            program_and_replica = self._status.find(holder_id)
            if program_and_replica is None:
                readings.add(catalogue.ARENA_SIZE, usage.size_bytes)
                readings.add(catalogue.ARENA_USED, usage.used_bytes)
                readings.add(catalogue.ARENA_MEMORY, usage.resident_bytes)
            else:
                program = program_and_replica[0].name
                readings.add(catalogue.REPLICA_ARENA_SIZE, usage.size_bytes, program)
                readings.add(catalogue.REPLICA_ARENA_USED, usage.used_bytes, program)
                readings.add(catalogue.REPLICA_ARENA_MEMORY, usage.resident_bytes, program)
        readings.add(catalogue.ARENA_FILL, max(map(_fill, usages.values()), default=0.0))


def _fill(usage: ArenaUsage) -> float:
    return usage.used_bytes / usage.size_bytes if usage.size_bytes else 0.0


def _read_states(name: str, status: ProgramStatus, readings: Readings) -> None:
    for state in ReplicaState:
        readings.add(catalogue.REPLICAS, len(status.of_state(state)), name, state.value)
    readings.add(catalogue.REPLICAS, status.counts().starting, name, ProgramState.STARTING.value)
    readings.add(catalogue.PROGRAM_FAILING, int(status.state is ProgramState.FAILING), name)
