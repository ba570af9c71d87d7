"""A node's fork server: has imported what replicas need, and forks their processes on request.

`python -m dyorc.replica.fork_server DESCRIPTOR FOLDER INODE HOME`, started by `ForkClient` with a listening socket and its inode,
and with the server's folder, which it clears up if the server was killed. It imports none of the user's modules, starts no thread
and never uses CUDA, so that a forked process may do all three. It ends once no client is connected and its replicas have ended;
it kills the ones that take too long. If it is killed itself, its replicas live on, and the next client starts another.

Each request has one reply: ``preload`` imports modules and returns which packages have started threads, ``fork`` starts a
replica, ``fork_member`` a member of the group that a replica leads. When a leader ends, its members are killed at once.
"""

import contextlib
import gc
import importlib
import os
import select
import selectors
import signal
import socket
import sys
import time
from collections.abc import Generator, Sequence
from typing import Any

from dyorc.replica.fork_folder import new_member_path, new_replica_path, remove
from dyorc.replica.server_home import clear_up
from dyorc.system.json_lines import JsonLineSocket, Message

_LIBRARIES = ("numpy", "numpy.ma", "numpy.random", "torch", "torch.utils._device", "dyorc.replica.forked_process")
"""With the parts of libraries that are imported when they are first used, as each replica would do."""
_FIRST_CALL_S = 10.0
"""How long it waits for the process that has started it."""
_END_S = 5.0
"""How long its replicas have to end after the last client has left, in addition to their graceful shutdown."""


def main() -> None:
    """Runs a fork server."""
    if os.fork():
        os._exit(0)  # so that it has no parent: Ray's workers kill their children when they end
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.set_inheritable(False)
    folder, inode, home = sys.argv[2], int(sys.argv[3]), sys.argv[4]
    _import(_LIBRARIES)
    ForkServer(listener, folder).run()
    remove(folder, inode)
    if home:
        clear_up(home)
    os._exit(0)  # without the exit handlers of libraries


class ForkServer:
    """Serves until no client or replica needs it.

    Args:
        listener: Where clients connect.
        folder: Where its replicas listen.
    """

    def __init__(self, listener: socket.socket, folder: str) -> None:
        self._listener = listener
        self._folder = folder
        self._selector = selectors.DefaultSelector()
        self._lines: dict[int, JsonLineSocket] = {}
        self._left: list[JsonLineSocket] = []
        """Connections of clients that send nothing more; open for as long as these wait to see when this process ends."""
        self._has_served = False
        self._children: set[int] = set()
        self._members: dict[int, set[int]] = {}
        """Members of groups, by the process that leads them."""
        self._alone_since_s = time.monotonic()
        self._patience_s = _FIRST_CALL_S

    def run(self) -> None:
        """Serves."""
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._reap)
        while self._is_needed():
            for key, _ in self._selector.select(None if self._lines else 1.0):
                key.data()
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)  # once this process has ended, nothing uses what they have left

    def _is_needed(self) -> bool:
        if self._lines:
            return True
        is_expecting = not self._has_served or bool(self._children)
        return is_expecting and time.monotonic() - self._alone_since_s < self._patience_s

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        line = self._lines[connection.fileno()] = JsonLineSocket(connection)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._handle_messages(line))

    def _handle_messages(self, line: JsonLineSocket) -> None:
        messages = line.receive_ready()
        if messages is None:
            self._selector.unregister(line.connection)
            self._left.append(self._lines.pop(line.fileno()))
            self._has_served = True
            self._alone_since_s = time.monotonic()
            self._forget_gone()
            return
        for message in messages:
            match message["kind"]:
                case "preload":
                    line.send("preloaded", threads_of=_import(message["modules"]))
                case "fork":
                    path = new_replica_path(self._folder, message["key"])
                    line.send("forked", **self._fork(message, path, "replica"))
                case "fork_member":
                    line.send("forked", **self._fork(message, new_member_path(self._folder), "member"))
                case other:
                    line.send("refused", error=f"unknown request {other!r}")

    def _forget_gone(self) -> None:
        """Closes the connections whose clients wait no longer: each Serve replica that ends is one."""
        poll = select.poll()
        for line in self._left:
            poll.register(line.connection, 0)  # that nobody listens is always reported
        gone = {descriptor for descriptor, _ in poll.poll(0)}
        for line in self._left:
            if line.fileno() in gone:
                line.close()
        self._left = [line for line in self._left if line.fileno() >= 0]

    def _fork(self, order: Message, path: str, role: str) -> dict[str, Any]:
        """Forks a replica or a member; returns once it listens."""
        process = importlib.import_module("dyorc.replica.forked_process")
        try:
            assignment = process.prepare(order["assignment"])
        except Exception as error:
            return {"error": f"its assignment cannot be read: {error}"}
        ready, listening_pipe = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(listening_pipe)
            os.close(ready)
            return {"error": f"no process can be forked: {error}"}
        if pid == 0:
            self._close_inherited()
            os.close(ready)
            process.become(role, assignment, path, listening_pipe)
        os.close(listening_pipe)
        self._children.add(pid)
        if (leader := order.get("leader")) is not None:
            self._members.setdefault(leader, set()).add(pid)
        self._patience_s = max(self._patience_s, order["graceful_s"] + _END_S)
        with open(ready, "rb") as end:
            return {"path": path} if end.read(1) else {"error": "the forked process ended at once; its log says why"}

    def _close_inherited(self) -> None:
        """In a forked process: closes what belongs to the fork server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for end in (self._listener, self._woken, self._waker, *self._lines.values(), *self._left):
            end.close()

    def _reap(self) -> None:
        """Collects children that have ended."""
        self._woken.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._children.discard(pid)
                for member in self._members.pop(pid, set()) & self._children:
                    os.kill(member, signal.SIGKILL)  # one that is stopped does not see that its leader is gone


def _import(names: Sequence[str]) -> list[str]:
    """Imports modules, and ignores errors: in a replica, the user's code will raise them again.

    Returns:
        The packages that have started threads.
    """
    with_threads: list[str] = []
    num_threads = _num_threads()
    with _without_blas_threads():
        for name in names:
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
                if _num_threads() > num_threads:
                    num_threads = _num_threads()
                    with_threads.append(name.partition(".")[0])
    gc.collect()
    gc.freeze()  # the collector would write to each object, and so copy the memory that forked processes share
    return with_threads


def _num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


@contextlib.contextmanager
def _without_blas_threads() -> Generator[None]:
    """Keeps OpenBLAS, a part of NumPy, from starting its threads when it is loaded; replicas set their number."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


if __name__ == "__main__":
    main()
