"""Measures programs and replicas for metrics: what they have to do, their states, processes and arenas, and the link to them."""

from collections.abc import Mapping

from dyorc.answering.tensor_exchange import Tensors
from dyorc.engine.engine import Engine
from dyorc.models.status import ProgramState, ProgramStatus, ReplicaState, StatusBoard
from dyorc.telemetry.levels import Levels
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.process_source import ReplicaProcesses
from dyorc.telemetry.metrics.readings import Readings
from dyorc.transport.arena_file import ArenaUsage


def read_levels(levels: Levels, engine: Engine, readings: Readings) -> None:
    """Adds what is in flight and what programs have to do, and what only the engine knows of that."""
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
            name: {pid for one in status.replicas.values() if one.node == node for pid in one.pids}
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
            found = self._status.find(holder_id)
            if found is None:
                readings.add(catalogue.ARENA_SIZE, usage.size_bytes)
                readings.add(catalogue.ARENA_USED, usage.used_bytes)
                readings.add(catalogue.ARENA_RESIDENT, usage.resident_bytes)
            else:
                program = found[0].name
                readings.add(catalogue.REPLICA_ARENA_SIZE, usage.size_bytes, program)
                readings.add(catalogue.REPLICA_ARENA_USED, usage.used_bytes, program)
                readings.add(catalogue.REPLICA_ARENA_RESIDENT, usage.resident_bytes, program)
        readings.add(catalogue.ARENA_FILL, max(map(_fill, usages.values()), default=0.0))


def _fill(usage: ArenaUsage) -> float:
    return usage.used_bytes / usage.size_bytes if usage.size_bytes else 0.0


def _read_states(name: str, status: ProgramStatus, readings: Readings) -> None:
    for state in ReplicaState:
        readings.add(catalogue.REPLICAS, len(status.of_state(state)), name, state.value)
    readings.add(catalogue.REPLICAS, status.counts().starting, name, ProgramState.STARTING.value)
    readings.add(catalogue.PROGRAM_FAILING, int(status.state is ProgramState.FAILING), name)
