"""What must hold at rest where programs run: in processes of replicas, and in the engine that leads them."""

from dyorc.engine.invariants import check_all
from dyorc.engine.invariants.in_flight import InvariantError
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replica.resident_table import ResidentTable
from dyorc.replica.worker import Worker
from tests.whole_server.observed import Observed
from tests.whole_server.replica_processes import TROUBLES
from tests.whole_server.replicas import ControlPlane
from tests.whole_server.shapes import Shape

_SECOND_PROGRAMS = {"negates"}
"""Of the second group, which has no replicas in processes of their own."""


def faults_of_replicas(observed: Observed, plane: ControlPlane, shape: Shape) -> list[str]:
    """Returns what is wrong, a sentence each."""
    wrong = [fault for worker in observed.living(Worker) for fault in _faults_of_worker(worker)]
    wrong += [f"a replica was in trouble: {text}" for text in TROUBLES]
    num_residents = sum(map(len, observed.living(ResidentTable)))
    if num_residents:
        wrong.append(f"{num_residents} residents at rest")
    num_processes = len(plane.forks.processes)
    if plane.is_settled and num_processes != plane.num_wanted:
        wrong.append(f"{num_processes} processes of replicas at rest, expected {plane.num_wanted}")
    for orchestrator in observed.living(Orchestrator):
        wrong += _faults_of_engine(orchestrator)
        if shape.has_replicas and not _SECOND_PROGRAMS & set(orchestrator.status.programs):
            wrong += _faults_of_board(orchestrator, plane)
    return wrong


def _faults_of_worker(worker: Worker) -> list[str]:
    wrong: list[str] = []
    name, session = worker.exchange.holder.holder_id, worker._session
    if worker.exchange.num_tensors:
        wrong.append(f"{worker.exchange.num_tensors} tensors in the arena of {name} at rest")
    ongoing = None if session is None else session._ongoing
    if session is not None and (session._batches or (ongoing is not None and ongoing.num_batches)):
        wrong.append(f"{name} has a batch at rest")
    return wrong


def _faults_of_engine(orchestrator: Orchestrator) -> list[str]:
    engine = orchestrator._engine
    num_leased = len(engine.leases.counts) + len(engine.leases.absent_counts)
    wrong = [f"{num_leased} blocks are leased at rest"] if num_leased else []
    try:
        check_all(engine)
    except InvariantError as error:
        wrong.append(f"the engine at rest: {error}")
    return wrong


def _faults_of_board(orchestrator: Orchestrator, plane: ControlPlane) -> list[str]:
    """The leader knows each process, and no other; programs in its own process have no replica."""
    statuses = [status for status in orchestrator.status.programs.values() if status.max_replicas is None]
    known = {replica.pid for status in statuses for replica in status.replicas.values()}
    living = {process.pid for process in plane.forks.processes}
    return [] if known == living else [f"the orchestrator knows replicas {sorted(known)} at rest, expected {sorted(living)}"]
