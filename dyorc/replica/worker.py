"""The replica's worker: dials in, loads and drops its program on the orchestrator's orders, and runs batch after batch.

One thread does all of it (`Session`). The next batch arrives meanwhile in the kernel's buffer or in ZeroMQ's own thread, so
compute hides the transfer. Programs that wait or yield run on a thread of their own (`OngoingBatches`).
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

from dyorc.authoring.program import Program
from dyorc.replica.assignment import Identity, Uplink
from dyorc.replica.executor import load_error
from dyorc.replica.fork_client import GroupSite
from dyorc.replica.leader_link import LeaderLink, LeaderTracker
from dyorc.replica.program_copy import ProgramCopy, failure_of
from dyorc.replica.program_lifecycle import process_age_s
from dyorc.replica.session import Ending, Session
from dyorc.replica.shared_process import SharedProcess
from dyorc.replica.stager import Stager
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.transport.messages import (
    LastWords,
    Leaving,
    Loading,
    encode,
)
from dyorc.transport.staging import StagingArea
from dyorc.transport.tensor_path import TensorExchange

_FIRST_LOOK_S = 2.0
"""How long a new replica waits for the store to name the leader, before it dials the address that it was given."""
_ACKNOWLEDGED_S = 1.0
"""How soon the orchestrator, if there is one, acknowledges that a replica leaves or ends."""


class Worker:
    """Hosts one program.

    Args:
        find: Imports the user's module, and returns the program.
        plan: A digest of its code and options.
        site: Where members come from, if its program is split over a group.
        shared: What it shares with the workers of other programs of its process; None if it shares nothing.
        has_worked: Called on its thread once it has run its first batch.

    Attributes:
        exchange: Its end of the tensor path.
    """

    def __init__(
        self,
        find: Callable[[], Program],
        identity: Identity,
        uplink: Uplink,
        plan: str = "",
        site: GroupSite | None = None,
        shared: SharedProcess | None = None,
        has_worked: Callable[[], None] = lambda: None,
    ) -> None:
        self._has_worked = has_worked
        self._link: LeaderLink | None = None
        self._find = find
        self._name = identity.program
        self._identity = identity
        self._uplink = uplink
        self._plan = plan
        self._site = site
        self._shared = shared
        self._following = LeaderTracker(uplink)
        network = uplink.network(identity.host)
        self.exchange = TensorExchange(identity.replica_id, identity.node, uplink.transport, network)
        self._thread = threading.Thread(target=self._main, name=f"dyorc-{self._name}", daemon=True)
        self._found = threading.Event()
        self._ending = Ending()
        self._session: Session | None = None
        self._error: BaseException | None = None
        self._timeout_s = 0.0

    def start(self) -> None:
        """Starts the thread and waits until the program is imported. The orchestrator decides when it is loaded.

        Raises:
            ProgramLoadError: If the user's module cannot be imported; the orchestrator knows that.
        """
        self._thread.start()
        self._found.wait()
        if self._error is not None:
            raise self._error

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the thread after the running batch. Batches of a program that waits or yields may go on for half of the time; then
        they are cancelled.
        """
        self._ending.stop(timeout_s / 2)
        self._thread.join(timeout_s)

    def leave(self, timeout_s: float) -> None:
        """Ends the thread once the orchestrator has parked the replica, nothing runs, and nothing needs its tensors; at the
        latest after this time. Without an orchestrator, ends it after the running batch.
        """
        give_up_s = time.monotonic() + timeout_s
        if self._notify(Leaving(self._identity.replica_id, timeout_s), min(_ACKNOWLEDGED_S, timeout_s)):
            self._ending.is_leaving = True
            self._thread.join(max(0.0, give_up_s - time.monotonic()))
        self.stop(max(0.0, give_up_s - time.monotonic()))

    def report_last_words(self, reason: str) -> None:
        """Reports to the orchestrator, if there is one, why this process is about to end. Any thread."""
        self._notify(LastWords(self._identity.replica_id, reason), _ACKNOWLEDGED_S)

    def _notify(self, message: Leaving | LastWords, timeout_s: float) -> bool:
        """Sends a message on a separate link, and returns whether the orchestrator has acknowledged it in time."""
        with closing(self._uplink.dial(timeout_s, self._following.address)) as link:
            link.send([encode(message)])
            return link.receive() is not None

    @property
    def is_connected(self) -> bool:
        """Whether its orchestrator is certainly there. Any thread."""
        link = self._link
        return link is not None and link.is_connected

    def check(self) -> None:
        """Raises RuntimeError if the thread has died, or a batch takes longer than its program may."""
        if not self._thread.is_alive():
            raise RuntimeError(f"the worker of program {self._name!r} has died: {self._error!r}")
        since_s = None if self._session is None else self._session.busy_since_s
        if since_s is not None and time.monotonic() - since_s > self._timeout_s:
            raise RuntimeError(f"program {self._name!r} has been running one batch for more than {self._timeout_s} s")

    def _main(self) -> None:
        try:
            self._following.look(_FIRST_LOOK_S)  # the orchestrator that requested this replica may have been replaced long ago
            with closing(LeaderLink(self._uplink, self._following, self._uplink.link.announce_interval_s)) as link:
                self._link = link
                link.send([encode(Loading(self._identity.replica_id, self._name))])
                with self.exchange as exchange:
                    program = self._find_program(link)
                    self._timeout_s = program.options.execution_timeout_s
                    copy = ProgramCopy(program, self._identity, exchange.holder, self._plan, process_age_s())
                    copy.spans, copy.site = self._spans(), self._site
                    if self._shared is not None:
                        copy.loops = self._shared.loops
                    self._found.set()
                    self._work(link, exchange, copy)
        except BaseException as error:
            self._error = error
        finally:
            self._found.set()

    def _work(self, link: LeaderLink, exchange: TensorExchange, copy: ProgramCopy) -> None:
        """Runs batches; fetches tensors ahead, if there are other nodes."""
        with ExitStack() as stack:
            if copy.spans is not None:
                stack.enter_context(copy.spans)
            staging = None
            if self._uplink.secrets is not None:
                routes = exchange.routes()
                stack.callback(routes.close)
                staging = StagingArea(routes, self._uplink.transport.staging_bytes)
                stack.enter_context(Stager(self._identity.replica_id, self._uplink, self._following, staging))
            routes = exchange.routes()
            stack.callback(routes.close)
            self._session = Session(link, exchange, routes, copy, staging, self._shared, self._has_worked)
            self._session.run(self._ending)

    def _spans(self) -> ProgramSpans | None:
        return None if self._uplink.spans is None else ProgramSpans.to(self._uplink.spans)

    def _find_program(self, link: LeaderLink) -> Program:
        try:
            return self._find()
        except BaseException as error:  # the user's module may raise anything
            failure = load_error(self._name, error)
            link.send([encode(failure_of(failure))])
            raise failure from error
