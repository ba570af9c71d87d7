"""Servers in processes of their own: their output, how to wait for them, and that nothing of them is left."""

import os
import re
import signal
import sys

import pytest

from dyorc.testing import ServerProcess
from tests.deadlines import TIMEOUT_S, wait_until

_BLOCKS_SIGINT = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); "
"""A process that a shell has started in the background ignores SIGINT, unless it is blocked."""
_LISTENS = "print('Listening on http://127.0.0.1:1', flush=True); "
_ENDS_ON_SIGINT = "signal.sigwait([signal.SIGINT])"
_LEAVES_AN_ORPHAN_AND_A_FILE = f"""
{_BLOCKS_SIGINT}
import subprocess, sys, tempfile
subprocess.Popen([sys.executable, "-c", "import signal; print('child', flush=True); signal.pause()"], start_new_session=True)
tempfile.mkstemp()
print("Listening on http://127.0.0.1:1\\ngRPC on 127.0.0.1:2\\nReady after 1.5 s", flush=True)
{_ENDS_ON_SIGINT}
"""


def _server(code: str) -> ServerProcess:
    return ServerProcess([sys.executable, "-c", code])


def test_its_output_is_shown_and_kept() -> None:
    shown: list[str] = []
    with ServerProcess([sys.executable, "-c", f"{_LISTENS} print('Ready.')"], show=shown.append) as server:
        server.wait()
        server.wait_until_ready()
        assert (server.url, server.grpc_address) == ("http://127.0.0.1:1", "")
        assert server.leftovers() == []
    assert shown == server.lines == ["Listening on http://127.0.0.1:1", "Ready."]


def test_leftovers_of_a_server_are_found_and_removed() -> None:
    with _server(_LEAVES_AN_ORPHAN_AND_A_FILE) as server:
        assert server.wait_until_ready() == 1.5
        assert (server.url, server.grpc_address) == ("http://127.0.0.1:1", "127.0.0.1:2")
        server.wait_for("^child$")
        (orphan,) = set(server.pids()) - {server.process.pid}
        server.process.send_signal(signal.SIGINT)
        server.process.wait()
        left = [one for one in server.leftovers(timeout_s=0) if not one.startswith("shared memory")]
        assert [one.split()[0] for one in left] == ["process", "file"]
        assert f"process {orphan} " in left[0]
        assert str(server.temporary_folder) in left[1]
        os.kill(orphan, signal.SIGKILL)
        wait_until(lambda: server.pids() == [], "the orphan is gone")
    assert not server.temporary_folder.exists()


def test_orphans_are_ended_with_it() -> None:
    with _server(_LEAVES_AN_ORPHAN_AND_A_FILE) as server:
        server.wait_for("^child$")
        assert len(server.pids()) == 2
    assert server.pids() == []


@pytest.mark.parametrize(
    ("after", "timeout_s", "text"), [("", TIMEOUT_S, "the server ended before"), (_ENDS_ON_SIGINT, 0.0, "0 s passed before")]
)
def test_a_server_that_does_not_become_ready_is_an_error_with_its_output(after: str, timeout_s: float, text: str) -> None:
    with _server(f"{_BLOCKS_SIGINT}{_LISTENS}{after}") as server:
        server.wait_for("Listening")
        with pytest.raises(RuntimeError, match=re.escape(text)) as caught:
            server.wait_until_ready(timeout_s)
    assert "Listening on http://127.0.0.1:1" in str(caught.value)
