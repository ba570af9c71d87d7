"""Reads what an orchestrator is doing now: see `dyorc.telemetry.levels`."""

from collections import Counter
from collections.abc import Mapping

from dyorc.engine.engine import Engine
from dyorc.engine.engine_statistics import EngineStatistics, GuessCounts, ModelRecord
from dyorc.engine.interfaces import Load
from dyorc.models.status import ProgramStatus
from dyorc.orchestrator.scaler import Scaler
from dyorc.telemetry.levels import GuessLevels, Levels, ProgramLevels, WorkflowLevels


def levels_of(
    engine: Engine, statistics: EngineStatistics, programs: Mapping[str, ProgramStatus], scaler: Scaler, link: Mapping[str, int]
) -> Levels:
    """Returns the numbers. Cost: looks at every program, replica and request in flight."""
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
