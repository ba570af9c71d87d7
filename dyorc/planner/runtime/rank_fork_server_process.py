"""The process of a rank fork server: imports what ranks need, then forks a rank for each request.

`RankForkServer` starts it: `python -m dyorc.planner.runtime.rank_fork_server_process DESCRIPTOR MODULE FOLDER`. It starts no
thread and never touches CUDA, so that a forked process may do both. It reports the exit code of each rank over a pipe of that
rank. When its parent ends or closes the connection, it kills the remaining ranks, removes their folder and ends. If it is
killed itself, its ranks go on.
"""

import contextlib
import gc
import importlib
import os
import random
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from dyorc.planner.runtime import descriptor_messages
from dyorc.planner.runtime.message_lanes import MEMORY_FOLDER
from dyorc.transport.arena_file import sweep

_IMPORTED_LATER = ("safetensors.torch",)
"""What every rank imports only when it runs."""


@dataclass(frozen=True, slots=True)
class _Child:
    """A rank.

    Attributes:
        pid: Its process.
        pidfd: Its process descriptor.
        exit_pipe: The pipe that reports its exit code.
    """

    pid: int
    pidfd: int
    exit_pipe: int


class RankForkServerProcess:
    """Forks ranks until its parent is gone.

    Args:
        parent: Where orders come from.
        become: Makes a forked process a rank, which talks by a socket.
        folder: Is removed at the end; nothing is, if empty.
    """

    def __init__(self, parent: socket.socket, become: Callable[[socket.socket], NoReturn], folder: str = "") -> None:
        self._parent = parent
        self._become = become
        self._folder = folder
        self._children: set[_Child] = set()
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serves."""
        self._selector.register(self._parent, selectors.EVENT_READ)
        with contextlib.suppress(EOFError, ConnectionError):  # the parent is gone
            while True:
                for key, _ in self._selector.select():
                    if key.data is None:
                        self._fork(*descriptor_messages.receive(self._parent))
                    else:
                        self._collect(key.data)
        for child in self._children:
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
            os.waitpid(child.pid, 0)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)  # the parent may be doing it as well
            sweep(MEMORY_FOLDER)

    def _fork(self, environment: Mapping[str, str], descriptors: list[int]) -> None:
        wire, exit_pipe, *others = descriptors
        pid = os.fork()
        if pid == 0:
            self._become_rank(environment, descriptors)
        child = _Child(pid, os.pidfd_open(pid), exit_pipe)
        self._children.add(child)
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)
        for descriptor in (wire, *others):
            os.close(descriptor)
        descriptor_messages.send(self._parent, {"pid": pid}, [child.pidfd])

    def _collect(self, child: _Child) -> None:
        """Collects a rank that has ended, and reports its exit code."""
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        self._children.remove(child)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        with contextlib.suppress(BrokenPipeError):  # the parent has closed it
            os.write(child.exit_pipe, str(code).encode())
        os.close(child.exit_pipe)

    def _become_rank(self, environment: Mapping[str, str], descriptors: list[int]) -> NoReturn:
        """Is a forked process, from its first instruction to its last."""
        try:
            wire, exit_pipe, folder, *output = descriptors
            self._close_inherited(exit_pipe)
            os.setsid()  # Ctrl-C is the parent's to handle
            for number, descriptor in enumerate(output, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            adopt_environment(environment, folder)
            self._become(socket.socket(fileno=wire))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)

    def _close_inherited(self, exit_pipe: int) -> None:
        """Closes the descriptors of the fork server and of other ranks: an open copy would make them look alive."""
        os.close(exit_pipe)
        self._selector.close()
        self._parent.close()
        for child in self._children:
            os.close(child.pidfd)
            os.close(child.exit_pipe)


def adopt_environment(environment: Mapping[str, str], folder: int) -> None:
    """Makes a forked process what a new one would be.

    Args:
        environment: Its own, whole.
        folder: A descriptor of where it works; is closed.
    """
    Path("/proc/self/comm").write_text("dyorc-rank")
    os.environ.clear()
    os.environ.update(environment)
    os.fchdir(folder)
    os.close(folder)
    tempfile.tempdir = None  # as the new environment says
    for reseed in (random.seed, np.random.seed, torch.default_generator.seed):
        reseed()
    torch.set_num_threads(1)


def main() -> None:
    """Takes over the socket whose descriptor is the first argument; ranks are of the module that is the second, and meet in the
    folder that is the third.
    """
    parent = socket.socket(fileno=int(sys.argv[1]))
    parent.set_inheritable(False)
    become = importlib.import_module(sys.argv[2]).become_rank
    for name in _IMPORTED_LATER:
        importlib.import_module(name)
    if threads := _other_threads():
        raise RuntimeError(f"imports have started threads, which a forked process would lack: {', '.join(threads)}")
    gc.collect()
    gc.freeze()  # the collector would write to each object, and so copy the memory that forked processes share
    RankForkServerProcess(parent, become, sys.argv[3]).run()
    os._exit(0)  # exit handlers of libraries are not for this process


def _other_threads() -> list[str]:
    numbers = set(os.listdir("/proc/self/task")) - {str(os.getpid())}
    return [Path(f"/proc/self/task/{number}/comm").read_text().strip() for number in numbers]


if __name__ == "__main__":
    main()
