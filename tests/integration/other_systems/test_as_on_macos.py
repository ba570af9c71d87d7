"""A cell runs where Linux's own calls and files are missing: names that macOS's Python lacks are deleted, `/proc`, `/dev/shm` and
`/sys` are empty where the test is run by root, and `sys.platform` is ``darwin``, in all processes of the server.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import dyorc
from dyorc.testing.server_process import ServerProcess
from tests.deadlines import TIMEOUT_S
from tests.integration.other_systems.scaled import expected

_HERE = Path(__file__).parent
_ROOT = Path(__file__).parents[3]
_AS_ON_MACOS = {"PYTHONPATH": f"{_HERE / 'as_on_macos'}{os.pathsep}{_ROOT}"}
_TARGET = f"{_HERE / 'scaled.py'}:scaled"
_NUM_FLOATS = 2 * 2**20
"""8 MB, more than what travels inside messages."""


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(arguments or ("-c", textwrap.dedent(code)))]
    environment = {**os.environ, **_AS_ON_MACOS}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=_ROOT)


def test_the_names_and_files_are_really_missing() -> None:
    done = _run(
        """
        import mmap, os, select, signal, socket, sys
        missing = [(os, "memfd_create"), (os, "pidfd_open"), (os, "sched_getaffinity"), (os, "posix_fallocate"),
                   (select, "epoll"), (signal, "pidfd_send_signal"), (socket, "SO_PEERCRED"), (mmap, "MADV_REMOVE")]
        assert not [name for module, name in missing if hasattr(module, name)]
        assert sys.platform == "darwin"
        assert os.geteuid() != 0 or not os.path.exists("/proc/self/stat") and not os.path.exists("/proc/cpuinfo")
        """
    )
    assert done.returncode == 0, done.stderr


def test_every_module_is_imported_without_linux_or_the_optional_libraries() -> None:
    done = _run(
        """
        import importlib, pkgutil, sys, warnings
        import numpy  # before the libraries that it would look for are refused

        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("torch", "ray", "redis", "opentelemetry"):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Missing())
        warnings.filterwarnings("ignore", "dyorc.offline")  # the planner's old name
        import dyorc, loadgen
        from dyorc.errors import MissingLibraryError
        num_modules = 0
        for package in (dyorc, loadgen):
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda name: None):
                if module.name.endswith("__main__"):
                    continue
                num_modules += 1
                try:
                    importlib.import_module(module.name)
                except MissingLibraryError:
                    pass
                except ModuleNotFoundError as error:
                    optional = ("torch", "ray", "redis", "opentelemetry", "matplotlib", "scipy")
                    assert error.name.partition(".")[0] in optional, error
        print(num_modules)
        """
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300


def test_a_workflow_runs_in_the_callers_process() -> None:
    done = _run(
        """
        import dyorc, numpy as np
        from tests.integration.other_systems.scaled import expected, scaled
        for image in (np.zeros(4, np.float32), np.arange(2**21, dtype=np.float32)):
            np.testing.assert_array_equal(dyorc.run(scaled, image), expected(image))
        """
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("how", [("serve", "--in-process"), ("dev",)])
def test_a_cell_answers_and_leaves_nothing(how: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "dyorc.cli.main", *how, _TARGET, "--port", "0"]
    with ServerProcess(command, environment=_AS_ON_MACOS, folder=_ROOT) as server:
        server.wait_until_ready()
        with dyorc.Client(server.url) as client:
            for size in (4, _NUM_FLOATS, _NUM_FLOATS):  # the second large one lies where the first has lain
                image = np.linspace(0, size, size, dtype=np.float32)
                answer = client.infer("scaled", image=image, timeout_s=TIMEOUT_S)
                np.testing.assert_array_equal(np.asarray(answer), expected(image))
        arenas = [name for pid in server.pids() for name in _open_files(pid) if "dyorc-arena-" in name]
        assert arenas, "expected the arena's file among the open ones"
        assert all(name.startswith(f"{server.temporary_folder}/") and name.endswith("(deleted)") for name in arenas)
        server.stop()
        assert server.leftovers() == []


def _open_files(pid: int) -> list[str]:
    return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (("serve", _TARGET), "replicas on Ray need Linux, and this system is darwin: serve with --in-process"),
        (("serve", "--in-process", "--cells", "2", _TARGET), "several processes that share a port need Linux"),
        (("gateway",), "a gateway apart from its orchestrator needs Linux"),
        (("orchestrator", "--in-process", _TARGET), "an orchestrator apart from its gateways needs Linux"),
    ],
)
def test_what_needs_linux_says_so(arguments: tuple[str, ...], instead: str) -> None:
    done = _run("", "-m", "dyorc.cli.main", *arguments)
    assert done.returncode == 1
    assert instead in done.stderr
    assert "Traceback" not in done.stderr
