"""What is left of a server that was killed: its Ray's agents, and its folder."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from dyorc.replica.server_home import TOKEN_VARIABLE, clear_up, token_path
from dyorc.system.owned_folder import lock
from tests.deadlines import wait_until


@contextmanager
def _process(name: str, folder: Path) -> Generator[subprocess.Popen[bytes]]:
    environment = {**os.environ, TOKEN_VARIABLE: token_path(str(folder))}
    process = subprocess.Popen([name, "600"], executable="/bin/sleep", env=environment)
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


def test_a_folder_without_a_lock_is_left_alone(tmp_path: Path) -> None:
    clear_up(str(tmp_path))
    assert tmp_path.exists()
