"""What is known of a process that has connected, and of how it ended."""

import platform
import resource
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dyorc.transport.peer_process import PROCESS_ENDED, PeerEnding, PeerProcess, ending_of

_CHILD = """
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
sys.stdin.read(1)
exec(sys.argv[2])
"""
_TELLS_AFTERWARDS = tuple(map(int, platform.release().split(".")[:2])) >= (6, 15)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("os.kill(os.getpid(), 11)", PeerEnding("its process was killed by signal 11, SIGSEGV", is_crash=True)),
        ("os.abort()", PeerEnding("its process was killed by signal 6, SIGABRT", is_crash=True)),
        ("os.kill(os.getpid(), 9)", PeerEnding("its process was killed by signal 9, SIGKILL", was_killed=True)),
        ("os._exit(3)", PeerEnding("its process ended with exit code 3", is_crash=True)),
        ("os._exit(0)", PeerEnding("its process ended with exit code 0")),
    ],
)
def test_how_it_ended_is_known_before_and_after_its_parent_has_asked(tmp_path: Path, end: str, expected: PeerEnding) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        command = [sys.executable, "-c", _CHILD, path, end]
        with subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=_without_core) as child:
            connection, _ = listener.accept()
            peer = PeerProcess(connection)
            assert peer.is_running()
            assert peer.ending() == PROCESS_ENDED, "nothing is known of one that runs"
            assert peer.end_descriptor is not None
            _go_on(child)
            select.select([peer.end_descriptor], [], [])
            assert not peer.is_running()
            assert peer.ending() == expected
            child.wait()
            assert peer.ending() == (expected if _TELLS_AFTERWARDS else PROCESS_ENDED)
            peer.close()
            assert peer.ending() == PROCESS_ENDED
            connection.close()


def _without_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _go_on(child: "subprocess.Popen[bytes]") -> None:
    assert child.stdin is not None
    child.stdin.write(b"x")
    child.stdin.flush()


def test_an_unknown_signal_is_named_by_its_number() -> None:
    assert ending_of(signal.SIGRTMIN + 5) == PeerEnding(
        f"its process was killed by signal {signal.SIGRTMIN + 5}, unknown", is_crash=True
    )
