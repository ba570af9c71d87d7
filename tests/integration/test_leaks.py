"""Tests of the leak check itself: it finds each kind of thing."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from dyorc.testing.leftovers import OWNER
from tests.leaks import no_leaks


@contextmanager
def descriptor() -> Iterator[None]:
    """Opens a pipe."""
    ends = os.pipe()
    yield
    for end in ends:
        os.close(end)


@contextmanager
def thread() -> Iterator[None]:
    """Starts a thread."""
    end = threading.Event()
    found = threading.Thread(target=end.wait)
    found.start()
    yield
    end.set()
    found.join()


@contextmanager
def process() -> Iterator[None]:
    """Starts a process."""
    found = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    yield
    found.kill()
    found.wait()


@contextmanager
def shared_memory() -> Iterator[None]:
    """Makes an entry in shared memory."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm"):
        yield


@contextmanager
def temporary_folder() -> Iterator[None]:
    """Makes a folder as a server does."""
    with tempfile.TemporaryDirectory(prefix="dyorc-"):
        yield


@pytest.mark.parametrize("kind", [descriptor, thread, process, shared_memory, temporary_folder])
def test_the_leak_check_names_what_is_left(kind: Callable[[], AbstractContextManager[None]]) -> None:
    name = getattr(kind, "__name__", "").replace("_", " ")
    with ExitStack() as stack, pytest.raises(AssertionError, match=f"left behind: .*{name}: "), no_leaks(timeout_s=0.1):
        stack.enter_context(kind())


def _left_by_a_process(owner: str) -> Path:
    """Returns a folder that a process has made which is killed, as it does in tests of this owner."""
    script = "import os; from tests.shared_folders import shared_folder; f = shared_folder(); print(f.__enter__()); os.abort()"
    ended = subprocess.run(
        [sys.executable, "-uc", script], env=os.environ | {OWNER: owner}, stdout=subprocess.PIPE, text=True, check=False
    )
    return Path(ended.stdout.strip())


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_a_killed_process_leaves_counts_only_in_the_tests_that_started_it(is_ours: bool) -> None:
    with ExitStack() as stack:
        if is_ours:
            stack.enter_context(pytest.raises(AssertionError, match="left behind: shared memory: "))
        with no_leaks(timeout_s=0.1):
            path = _left_by_a_process(os.environ[OWNER] if is_ours else "1")
            stack.callback(path.rmdir)


@contextmanager
def busy_thread_of_grpc() -> Iterator[None]:
    """Starts a thread with the name that those of gRPC's pool have."""
    is_named, end = threading.Event(), threading.Event()

    def named() -> None:
        Path("/proc/thread-self/comm").write_text("event_engine")
        is_named.set()
        end.wait()

    found = threading.Thread(target=named)
    found.start()
    is_named.wait()
    yield
    end.set()
    found.join()


def test_a_thread_that_grpc_starts_when_the_machine_is_busy_does_not_count() -> None:
    with ExitStack() as stack, no_leaks(timeout_s=0.1):
        stack.enter_context(busy_thread_of_grpc())
