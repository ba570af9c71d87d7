"""A forked process becomes a replica, or a member of a replica's group. Called by the fork server, in the child.

A replica's main thread listens to its owners (`ReplicaOwners`); the worker has its own thread. A member is a rank of the plan
that a replica runs; it lives as long as the replica that leads the group holds the only connection to it.
"""

import contextlib
import ctypes
import faulthandler
import importlib
import logging
import os
import random
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NoReturn

import structlog

from dyorc.authoring.bundle_imports import compile_ahead
from dyorc.authoring.overrides import override
from dyorc.authoring.program import Program
from dyorc.errors import text_of
from dyorc.replica.assignment import DEVICE_VARIABLES, ForkServerSpec, ProgramSource, ReplicaAssignment
from dyorc.replica.fork_client import ForkClient, GroupSite
from dyorc.replica.replica_owners import ReplicaOwners
from dyorc.replica.shared_process import SharedProcess
from dyorc.replica.worker import Worker
from dyorc.system import malloc
from dyorc.system.module_path import put_first
from dyorc.telemetry import logs

_log = structlog.get_logger("dyorc.replica")

_BACKLOG = 16
_CALL_S = 10.0
"""How long a member waits for its leader."""
_PR_SET_NAME = 15
_SET_BLAS_THREADS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def prepare(orders: str) -> ReplicaAssignment:
    """Returns an assignment, in the fork server. Its code is compiled here, once for all programs of a file; it runs only in the
    forked process.
    """
    assignment = ReplicaAssignment.from_json(orders)
    for source, _ in assignment.replicas:
        if source.bundle is not None:
            compile_ahead(source.bundle)
    return assignment


def become(role: Literal["replica", "member"], assignment: ReplicaAssignment, path: str, listening_pipe: int) -> NoReturn:
    """Runs a replica until it has no owner, or a member until its leader is gone.

    Args:
        assignment: The replica's, or that of the member's leader.
        path: Where to listen for owners, or the leader.
        listening_pipe: A descriptor, written to once this process listens.
    """
    status = 1
    try:
        _settle(assignment)
        if role == "member":
            _name_process(f"dyorc-rank-{assignment.source.program}")
            leader = _accept_leader(path, listening_pipe)
            importlib.import_module("dyorc.planner.runtime.rank").become_rank(leader)
        else:
            logs.set_up(assignment.uplink.logs, replica=assignment.identity.replica_id)
            with _listening(path, listening_pipe) as listener:
                status = _host(assignment, listener)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)  # without the exit handlers of the fork server's libraries


@contextlib.contextmanager
def _listening(path: str, listening_pipe: int) -> Generator[socket.socket]:
    """Listens while entered. Since this process itself calls `listen`, its peers see it as the process at the other end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        try:
            listener.listen(_BACKLOG)
            os.write(listening_pipe, b"1")
            os.close(listening_pipe)
            yield listener
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _accept_leader(path: str, listening_pipe: int) -> socket.socket:
    with _listening(path, listening_pipe) as listener:
        listener.settimeout(_CALL_S)
        connection, _ = listener.accept()
    connection.settimeout(None)
    return connection


def _import_program(source: ProgramSource) -> Program:
    program = override(source.load(), source.overrides)
    if "ray" in sys.modules:
        importlib.import_module("dyorc.replica.serve_deployment").connect()
    return program


def _host(assignment: ReplicaAssignment, listener: socket.socket) -> int:
    faulthandler.enable()  # shows where a program crashes the interpreter
    loaded = threading.Event()
    failures: list[str] = []

    def lost(reason: str) -> None:
        _log.warning("group_lost", program=assignment.source.program, reason=reason)
        failures.append(reason)
        try:
            workers[0].report_last_words(reason)
        finally:
            owners.end(reason)

    def note_work() -> None:
        owners.note_work()

    def is_needed() -> bool:
        """Another Serve replica can only adopt this process if that gets the same devices: without any."""
        return loaded.is_set() and not has_devices and all(worker.is_connected for worker in workers)

    has_devices = any(value for name, value in assignment.environment.items() if name.endswith(DEVICE_VARIABLES))
    site = GroupSite(ForkClient(ForkServerSpec(folder=os.path.dirname(listener.getsockname()))), assignment, lost)
    replicas = assignment.replicas
    shared = SharedProcess(replicas[0][1].process) if assignment.group else None
    workers = [
        Worker(partial(_import_program, source), identity, assignment.uplink, source.plan, site, shared, note_work)
        for source, identity in replicas
    ]

    def start() -> None:
        try:
            for worker in workers:
                worker.start()
            loaded.set()
        except BaseException as error:
            failures.append(text_of(error))
            owners.end(failures[-1])

    def check() -> None:
        for worker in workers if loaded.is_set() else ():
            worker.check()

    owners = ReplicaOwners(listener, assignment.key, check, is_needed)
    threading.Thread(target=start, name="dyorc-start", daemon=True).start()
    owners.run()
    if loaded.is_set() and not failures:  # otherwise it has lost its group, and its running batch will run elsewhere
        _end(workers, assignment.graceful_s, is_leaving=owners.is_leaving)
    return 1 if failures else 0


def _end(workers: Sequence[Worker], graceful_s: float, *, is_leaving: bool) -> None:
    """Ends all workers at the same time: each waits for what it holds to be released."""
    ends = [worker.leave if is_leaving else worker.stop for worker in workers]
    threads = [threading.Thread(target=end, args=(graceful_s,), daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _settle(assignment: ReplicaAssignment) -> None:
    """Replaces what this process has inherited from the fork server."""
    os.setsid()
    malloc.keep_freed()
    _name_process(f"dyorc-{assignment.source.program}")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ |= {"DYORC_NUM_THREADS": str(assignment.num_threads), **assignment.environment}
    folder = assignment.source.folder
    with contextlib.suppress(OSError):  # it may not exist on another node; the target has its own path
        os.chdir(folder)
    put_first(folder)
    _forget_logging()
    _reseed()
    _limit_threads(assignment.num_threads)


def _name_process(name: str) -> None:
    """Sets the process name that tools like `top` show; the kernel keeps 15 bytes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def _forget_logging() -> None:
    """Removes handlers that a library has installed in the fork server."""
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()


def _reseed() -> None:
    """Makes processes forked from the same one draw different random numbers."""
    random.seed()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed()
    if torch is not None:
        torch.seed()


def _limit_threads(num_threads: int) -> None:
    """Sets how many threads torch and NumPy use. They have read the environment in the fork server, when they were loaded."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(num_threads)
    for set_num_threads in _blas_setters():
        set_num_threads(num_threads)


def _blas_setters() -> "Iterator[ctypes._NamedFuncPointer]":  # pyright: ignore[reportPrivateUsage]
    paths = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}
    for path in sorted(paths):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            yield from (library[name] for name in _SET_BLAS_THREADS if hasattr(library, name))
