"""Commands and servers whose standard streams are closed, full, not UTF-8, or read by somebody who goes away."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.deadlines import TIMEOUT_S, wait_until
from tests.server_process import COMMAND, target

SERVE = (COMMAND, "serve", target("arithmetic", "quadruple"), "--in-process", "--port", "0", "--grpc-port", "0")


@contextlib.contextmanager
def started(*command: str, closed: tuple[int, ...] = (), **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a command without the descriptors `closed`, and ends it."""

    def close() -> None:
        for descriptor in closed:
            os.close(descriptor)

    process = subprocess.Popen(command, preexec_fn=close if closed else None, **streams)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def listens(process: subprocess.Popen[bytes]) -> bool:
    """Returns whether it, or a cell of it, waits for clients."""
    assert process.poll() is None, f"ended with {process.returncode}"
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    return any(connection.status == psutil.CONN_LISTEN for one in family for connection in one.net_connections("tcp"))


def stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(TIMEOUT_S)


@pytest.mark.parametrize("cells", [(), ("--cells", "1")], ids=["one process", "a supervisor"])
def test_a_server_without_standard_streams_serves_and_stops(cells: tuple[str, ...]) -> None:
    with started(*SERVE, *cells, closed=(0, 1, 2)) as process:
        wait_until(lambda: listens(process), "it listens")
        for descriptor in (0, 1, 2):
            assert os.readlink(f"/proc/{process.pid}/fd/{descriptor}") == os.devnull
        assert stop(process) == 0


def test_a_server_outlives_the_reader_of_its_output() -> None:
    with started(*SERVE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline().startswith(b"Listening on")
        process.stdout.close()
        wait_until(lambda: listens(process), "it listens")
        assert stop(process) == 0
        assert process.stderr.read() == b""
        process.stderr.close()


def test_a_server_outlives_a_full_disk_below_its_output() -> None:
    with Path("/dev/full").open("wb") as full, started(*SERVE, stdout=full, stderr=full) as process:
        wait_until(lambda: listens(process), "it listens")
        assert stop(process) == 0


def test_output_is_escaped_where_the_encoding_does_not_have_it() -> None:
    text = "import sys; from dyorc.cli.main import main; sys.argv[1:] = ['serve', 'größe.py:flow']; main()"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    ended = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 1
    assert rb"gr\xf6\xdfe.py" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_pipe_that_ends_ends_a_command_without_a_traceback() -> None:
    with started(COMMAND, "config", "schema", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.wait(TIMEOUT_S)
        assert b"Traceback" not in process.stderr.read()
        process.stderr.close()
