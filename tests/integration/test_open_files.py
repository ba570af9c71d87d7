"""A server that may have few files open: it refuses connections by name, or says at its start what to set."""

import contextlib
import errno
import os
import resource
import socket
import subprocess
import sys
from collections import Counter

import pytest

from dyorc.errors import StoreError
from dyorc.gateway.http import http_server
from dyorc.system import descriptors
from dyorc.testing import START_TIMEOUT_S, ServerProcess, serve_command
from tests.deadlines import TIMEOUT_S

_LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
os.execv(sys.argv[2], sys.argv[2:])
"""
_TARGET = "tests.workflows.arithmetic:quadruple"


def _limited(num_files: int) -> list[str]:
    """Returns the command of a server that may have so many files open."""
    return [sys.executable, "-c", _LIMITED, str(num_files), *serve_command(_TARGET, in_process=True)]


def test_surplus_connections_are_refused_by_name_however_few_files_may_be_open() -> None:
    with ServerProcess(_limited(64)) as server, contextlib.ExitStack() as stack:
        server.wait_until_ready(START_TIMEOUT_S)
        (warning,) = [line for line in server.lines if "few_descriptors" in line]
        assert "raise the limit of open files (`ulimit -n`) to" in warning
        host, port = server.url.removeprefix("http://").split(":")
        sockets = [
            stack.enter_context(contextlib.closing(socket.create_connection((host, int(port)), TIMEOUT_S))) for _ in range(200)
        ]
        first_bytes: Counter[bytes] = Counter()
        for each in sockets:
            with contextlib.suppress(BrokenPipeError):  # it has been refused already
                each.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            first_bytes[each.recv(12)] += 1
        assert set(first_bytes) == {b"HTTP/1.1 200", b"HTTP/1.1 503"}
        server.stop()


def test_a_start_with_too_few_files_names_the_limit() -> None:
    ended = subprocess.run(_limited(40), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert "cannot serve gRPC on 127.0.0.1:0: Too many open files; a process may have 40 files" in lines[-1]
    assert "ulimit -n" in lines[-1]
    assert not [line for line in lines if line.startswith("E")], "gRPC writes nothing of its own"


@pytest.mark.parametrize(("limit", "num_open", "num"), [(64, 43, 10), (44, 43, 1), (2048, 100, 974), (65_536, 100, 16_384)])
def test_connections_get_what_is_left(monkeypatch: pytest.MonkeyPatch, limit: int, num_open: int, num: int) -> None:
    monkeypatch.setattr(descriptors, "raise_limit", lambda: limit)
    monkeypatch.setattr(descriptors, "num_open", lambda: num_open)
    assert http_server._connections_to_allow(16_384) == num


def test_the_number_of_open_files_is_counted() -> None:
    before = descriptors.num_open()
    with open(os.devnull) as _:
        assert descriptors.num_open() == before + 1


def test_the_cure_is_named_where_too_many_files_are_the_cause() -> None:
    full = OSError(errno.EMFILE, "Too many open files")
    try:
        raise StoreError("it cannot be opened") from full
    except StoreError as error:
        text = descriptors.with_cure(str(error), error)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert f"a process may have {soft} files and connections open here: raise the limit" in text
    assert descriptors.with_cure("no", OSError(errno.EACCES, "no")) == "no"
