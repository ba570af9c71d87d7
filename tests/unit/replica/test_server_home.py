"""What is left of a server that was killed: its Ray's agents, and its folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dyorc.replica.server_home import TOKEN_VARIABLE, clear_up, token_path
from dyorc.system.owned_folder import lock
from tests.deadlines import wait_until


@contextmanager
def _process(name: str, folder: Path, *script: str) -> Generator[subprocess.Popen[bytes]]:
    environment = {**os.environ, TOKEN_VARIABLE: token_path(str(folder))}
    executable = sys.executable if script else "/bin/sleep"
    process = subprocess.Popen([name, *(script or ("600",))], executable=executable, env=environment)
    wait_until(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(name.encode()), "it has its name")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_rays_processes_of_a_killed_server_end_and_its_folder_goes(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    with _process("ray::Agent", mine) as agent, _process("database", mine) as users, _process("ray::Agent", other) as others:
        descriptor = lock(str(mine))
        clear_up(str(mine))
        assert mine.exists()  # the server lives
        assert agent.poll() is None
        os.close(descriptor)  # as when it is killed
        clear_up(str(mine))
        agent.wait()
        assert not mine.exists()
        assert users.poll() is None
        assert others.poll() is None


@pytest.mark.parametrize(
    ("place", "is_rays"),
    [
        ("site-packages/ray/dashboard/agent.py", True),
        ("site-packages/ray/_private/runtime_env/agent/main.py", True),
        ("ray/work.py", False),
    ],
)
def test_an_agent_that_has_just_started_and_has_no_title_yet_ends_too(tmp_path: Path, place: str, is_rays: bool) -> None:
    home, script = tmp_path / "home", tmp_path / place
    home.mkdir()
    script.parent.mkdir(parents=True)
    script.write_text("import time\ntime.sleep(600)\n")
    with _process("python", home, "-u", str(script), "--node-id=1") as agent:
        os.close(lock(str(home)))
        clear_up(str(home))
        assert not home.exists()
        if is_rays:
            assert agent.wait() == -signal.SIGKILL
        else:
            assert agent.poll() is None


def test_a_folder_without_a_lock_is_left_alone(tmp_path: Path) -> None:
    clear_up(str(tmp_path))
    assert tmp_path.exists()
