"""Requests replicas from a node's fork server, and starts the fork server if need be. For the server and the Serve replicas."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from dyorc.errors import TransportError
from dyorc.replica.assignment import ForkServerSpec, ReplicaAssignment
from dyorc.replica.fork_folder import last_line, locked, log_path, replica_paths, server_path
from dyorc.system.json_lines import JsonLineSocket, Message
from dyorc.transport.peer_process import PeerProcess

_GONE_S = 5.0
"""How long a process may take to end once it has hung up, or was killed."""


class ReplicaHandle:
    """An owner's connection to a replica's process, which keeps the process alive until it is closed. One thread.

    Raises:
        OSError: If the process is gone.
    """

    def __init__(self, path: str) -> None:
        self.line = JsonLineSocket.dial(path)
        self.process = PeerProcess(self.line.connection)

    def adopt(self, key: str, timeout_s: float) -> bool:
        """Adopts the process. Returns False if it runs another program than `key` identifies, or has been adopted."""
        self.line.send("adopt", key=key)
        with contextlib.suppress(TimeoutError):
            while (message := self.line.receive(timeout_s)) is not None:
                if message["kind"] == "adopted":
                    return message["is_yours"]
        return False

    def kill(self) -> None:
        """Kills the process at once."""
        if self.process.end_descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process.end_descriptor, signal.SIGKILL)

    def end(self, timeout_s: float) -> None:
        """Ends the process after its running batch; kills it if it does not end in time. Closes the connection."""
        self.line.send("stop")
        give_up_s = time.monotonic() + timeout_s
        try:
            while self._receive(give_up_s) is not None:
                pass
        except TimeoutError:
            self.kill()
        self.process.wait(_GONE_S)  # it hangs up before it releases its arena
        self.close()

    def _receive(self, give_up_s: float) -> Message | None:
        return self.line.receive(max(0.001, give_up_s - time.monotonic()))

    def close(self) -> None:
        """Disconnects."""
        self.line.close()
        self.process.close()


_log = structlog.get_logger("dyorc.replica")

_MAX_ATTEMPTS = 3
_BACKLOG = 64
_ADOPT_TIMEOUT_S = 5.0


class ForkClient:
    """A connection to a fork server, which lives at least as long. Any thread; one request at a time."""

    def __init__(self, place: ForkServerSpec) -> None:
        self.folder = os.path.join(tempfile.gettempdir(), place.folder)
        self._modules = list(place.modules)
        self._home = place.home
        self._lock = threading.Lock()
        self._line: JsonLineSocket | None = None
        self._num_preloading = 0
        self._environment: dict[str, str] = {}

    def open(self) -> None:
        """Connects; returns at once, while a new fork server is importing.

        Raises:
            TransportError: If no fork server can be started.
        """
        with self._lock:
            self._connect()

    def preload(self, modules: list[str]) -> None:
        """Imports more modules in this fork server, and in its successors. Does not wait for that.

        If the environment has changed since the fork server was started, for example by a user's module, another is started: some
        libraries read the environment when they are imported.

        Raises:
            TransportError: If no fork server can be started.
        """
        with self._lock:
            self._modules = modules
            if self._environment != dict(os.environ):
                self._abandon()
            if self._line is None:
                self._connect()
            else:
                self._preload(self._line)

    def fork(self, assignment: ReplicaAssignment, *, is_adopted: bool) -> ReplicaHandle:
        """Returns a handle to a new process.

        Args:
            is_adopted: Whether the caller adopts it at once; otherwise another owner may.

        Raises:
            TransportError: If none can be forked.
        """
        reply = self._ask("fork", assignment=assignment.to_json(), key=assignment.key, graceful_s=assignment.graceful_s)
        if "error" in reply:
            raise TransportError(f"no replica of program {assignment.source.program!r}: {reply['error']}")
        try:
            handle = ReplicaHandle(reply["path"])
        except OSError as error:
            reason = f"its process ended at once: {last_line(self.folder)}"
            raise TransportError(f"no replica of program {assignment.source.program!r}: {reason}") from error
        if is_adopted:
            handle.adopt(assignment.key, _ADOPT_TIMEOUT_S)
        return handle

    def fork_member(self, leader: ReplicaAssignment, pid: int) -> socket.socket:
        """Returns the connection to a new member of a group. It ends when that is closed.

        Args:
            leader: The replica that leads the group.
            pid: Its process: when it ends, the member is killed, too.

        Raises:
            TransportError: If none can be forked.
        """
        order = {"assignment": leader.to_json(), "graceful_s": leader.graceful_s, "leader": pid}
        reply = self._ask("fork_member", **order)
        member = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if "error" in reply:
                raise TransportError(f"no member for a group of program {leader.source.program!r}: {reply['error']}")
            member.connect(reply["path"])
        except OSError as error:
            member.close()
            reason = f"its process ended at once: {last_line(self.folder)}"
            raise TransportError(f"no member for a group of program {leader.source.program!r}: {reason}") from error
        except TransportError:
            member.close()
            raise
        return member

    def adopt(self, key: str) -> ReplicaHandle | None:
        """Adopts a process that was forked ahead for the program that `key` identifies. Returns None if no replica has it."""
        for path in replica_paths(self.folder, key):
            try:
                handle = ReplicaHandle(path)
            except OSError:  # it has ended
                continue
            if handle.adopt(key, _ADOPT_TIMEOUT_S):
                return handle
            handle.close()
        return None

    def end_replicas(self, timeout_s: float) -> None:
        """Ends all replicas of this node after their running batches; kills the ones that take longer than this."""
        handles: list[ReplicaHandle] = []
        for path in replica_paths(self.folder):
            with contextlib.suppress(OSError):
                handles.append(ReplicaHandle(path))
        give_up_s = time.monotonic() + timeout_s
        for handle in handles:
            handle.line.send("stop")
        for handle in handles:
            handle.end(give_up_s - time.monotonic())

    def close(self, timeout_s: float = 0.0) -> None:
        """Hangs up, and waits at most this long for the fork server to end, which it does if it has no other clients."""
        with self._lock:
            if self._line is None:
                return
            self._line.connection.shutdown(socket.SHUT_WR)
            try:
                while timeout_s > 0 and self._line.receive(timeout_s) is not None:
                    pass
            except TimeoutError:
                pass
            self._hang_up()

    def _ask(self, kind: str, **content: Any) -> Message:
        with self._lock:
            for _ in range(_MAX_ATTEMPTS):
                line = self._connect()
                if self._has_preloaded(line):
                    line.send(kind, **content)
                    reply = line.receive()
                    if reply is not None:
                        return reply
                self._hang_up()
        raise TransportError(f"the fork server in {self.folder} ends again and again: {last_line(self.folder)}")

    def _has_preloaded(self, line: JsonLineSocket) -> bool:
        """Waits until the fork server has imported its modules; returns False if another fork server is needed."""
        while self._num_preloading:
            reply = line.receive()
            if reply is None:
                return False
            self._num_preloading -= 1
            if packages := reply["threads_of"]:  # a fork would lose these threads
                _log.info("not_imported_ahead", packages=packages)
                self._modules = [name for name in self._modules if name.partition(".")[0] not in packages]
                self._abandon()
                return False
        return True

    def _connect(self) -> JsonLineSocket:
        if self._line is None:
            with locked(self.folder):
                try:
                    self._line = JsonLineSocket.dial(server_path(self.folder))
                except OSError:
                    self._line = self._start()
            self._preload(self._line)
        return self._line

    def _preload(self, line: JsonLineSocket) -> None:
        self._num_preloading += 1
        line.send("preload", modules=self._modules)

    def _abandon(self) -> None:
        """Makes the next connection start another fork server. Other clients keep this one."""
        self._hang_up()
        with locked(self.folder), contextlib.suppress(FileNotFoundError):
            os.unlink(server_path(self.folder))

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
        self._num_preloading = 0

    def _start(self) -> JsonLineSocket:
        """Starts a fork server, and connects: it accepts once it has imported what every replica needs."""
        path = server_path(self.folder)
        self._environment = dict(os.environ)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, open(log_path(self.folder), "ab") as log:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listener.bind(path)
            listener.listen(_BACKLOG)
            descriptor, inode = listener.fileno(), os.stat(path).st_ino  # now: once it runs, another may have replaced it
            starter = subprocess.Popen(
                [sys.executable, "-P", "-m", "dyorc.replica.fork_server", str(descriptor), self.folder, str(inode), self._home],
                pass_fds=(descriptor,), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip
            line = JsonLineSocket.dial(path)
        starter.wait()  # it has forked the fork server itself
        return line


@dataclass(frozen=True, slots=True)
class GroupSite:
    """Where members come from, and what happens when one is lost.

    Attributes:
        client: For the fork server that forked this process.
        assignment: This process's own.
        lost: Ends this process, with a reason. Any thread.
    """

    client: ForkClient
    assignment: ReplicaAssignment
    lost: Callable[[str], None]
