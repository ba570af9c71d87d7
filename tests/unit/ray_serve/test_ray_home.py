"""The folder of a Ray of our own: refused before anything starts if Ray's sockets would not fit below it, and gone at the end."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dyorc.errors import ConfigurationError
from dyorc.ray_serve.ray_home import RayHome


def test_a_folder_whose_path_is_too_long_for_sockets_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 60)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    expected = f"{folder}, has a path of .* bytes, .* set TMPDIR to a path of at most 2. bytes"
    with pytest.raises(ConfigurationError, match=expected), RayHome():
        pass
    assert not list(folder.iterdir())


def test_an_agent_that_a_stopped_ray_has_left_ends_with_the_server(tmp_path: Path) -> None:
    script = tmp_path / "ray/dashboard/agent.py"
    script.parent.mkdir(parents=True)
    script.write_text("print(flush=True)\nimport time\ntime.sleep(600)\n")
    with RayHome() as home, subprocess.Popen([sys.executable, "-u", str(script)], stdout=subprocess.PIPE) as agent:
        try:
            assert agent.stdout is not None
            agent.stdout.readline()
            home.__exit__(None, None, None)
            assert agent.wait() == -signal.SIGKILL
            assert not Path(home.folder).exists()
        finally:
            agent.kill()
