"""A forked process becomes a replica. Called by the fork server, in the child; never returns.

The main thread listens to the process's holders (`ReplicaOwners`); the worker has a thread of its own.
"""

import contextlib
import faulthandler
import importlib
import os
import socket
import sys
import threading
import traceback
from typing import NoReturn

import structlog

from dyorc.authoring.overrides import override
from dyorc.authoring.program import Program
from dyorc.errors import text_of
from dyorc.replica.assignment import ForkServerSpec, ProgramSource, ReplicaAssignment
from dyorc.replica.fork_client import ForkClient
from dyorc.replica.forked_process import settle
from dyorc.replica.group_site import GroupSite
from dyorc.replica.holders import ReplicaOwners
from dyorc.replica.worker import Worker
from dyorc.telemetry import logs

_BACKLOG = 16
_log = structlog.get_logger("dyorc.replica")


def become(orders: str, path: str, told: int) -> NoReturn:
    """Runs a replica until nobody holds it.

    Args:
        orders: What to run: a `ReplicaAssignment`.
        path: Where to listen for holders.
        told: A descriptor, written to once it listens.
    """
    status = 1
    try:
        assignment = ReplicaAssignment.from_json(orders)
        settle(assignment)
        logs.set_up(assignment.uplink.logs, replica=assignment.identity.replica_id)
        with _listening(path) as listener:
            os.write(told, b"1")
            os.close(told)
            status = _host(assignment, listener)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)  # what the fork server's libraries would do at exit is not for this process


@contextlib.contextmanager
def _listening(path: str):
    """Listens while entered. Its peers see this process as the one they talk to, since it calls `listen` itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        try:
            listener.listen(_BACKLOG)
            yield listener
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _import_program(source: ProgramSource) -> Program:
    """Imports the user's module."""
    program = override(source.load(), source.overrides)
    if "ray" in sys.modules:
        importlib.import_module("dyorc.replica.ray_driver").connect()
    return program


def _host(assignment: ReplicaAssignment, listener: socket.socket) -> int:
    faulthandler.enable()  # a program that crashes the interpreter shows where
    loaded = threading.Event()
    failures: list[str] = []

    def lost(reason: str) -> None:
        _log.warning("group_lost", program=assignment.source.program, reason=reason)
        failures.append(reason)
        try:
            worker.report_last_words(reason)
        finally:
            holders.end(reason)

    site = GroupSite(ForkClient(ForkServerSpec(folder=os.path.dirname(listener.getsockname()))), assignment, lost)
    source = assignment.source
    worker = Worker(lambda: _import_program(source), assignment.identity, assignment.uplink, source.plan, site)

    def start() -> None:
        try:
            worker.start()
            loaded.set()
        except BaseException as error:
            failures.append(text_of(error))
            holders.end(failures[-1])

    holders = ReplicaOwners(listener, assignment.key, lambda: worker.check() if loaded.is_set() else None)
    threading.Thread(target=start, name="dyorc-start", daemon=True).start()
    holders.run()
    if loaded.is_set() and not failures:  # else it has no group any more, and its running batch is to be run elsewhere
        end = worker.leave if holders.is_leaving else worker.stop
        end(assignment.graceful_s)
    return 1 if failures else 0
