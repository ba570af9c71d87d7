"""How the tests share out the machine: which of them run together, in which order, and where their temporary files lie.

`make test` runs several processes of pytest-xdist side by side, more than there are cores, since many tests mostly wait.
"""

import functools
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests import real
from tests.shared_folders import own_arena_folder, own_run_folder
from tests.time_budget import time_budget

_ROOT = Path(__file__).parents[1]
_MAX_PROCESSES = 8
_LONGEST_FIRST = ("compose", "storm", "chaos", "power_cuts", "e2e", "property", "integration", "unit")
_RAY = "pytestmark = pytest.mark.ray"
_TOGETHER = ('scope="module"', "pytestmark = pytest.mark.together")
"""Either of these says that the tests of a module share something. The mark is for modules that share a fixture of a
`conftest.py`."""
_NUM_RAYS = 2
"""How many tests with a Ray may run at a time, for any number of processes: each takes 10 s of a core and 1 GB."""


os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
"""Before gRPC is imported: its handlers would stop its threads at every start of a process, and hang some of those processes."""


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marks, and makes folders for arenas and for what processes share before any test module is imported.

    A shell has what it starts in the background ignore Ctrl-C, and children inherit that, but tests send it to them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for folder in (own_run_folder(), own_arena_folder()):
        folder.__enter__()
        config.add_cleanup(functools.partial(folder.__exit__, None, None, None))
    config.pluginmanager.register(real)
    if (budget := time_budget(config)) is not None:
        config.pluginmanager.register(budget)
    config.addinivalue_line("markers", "ray: a Ray is started, here or for the whole module")
    config.addinivalue_line("markers", "pure: replaces parts of the engine, which its compiled modules do not allow")
    config.addinivalue_line("markers", "dist: tests what `make dist` has built; runs in `make test-dist` only")
    config.addinivalue_line(
        "markers", "compose: runs the cluster of docker-compose.yml; runs in `make compose-test` only, since it is heavy"
    )
    config.addinivalue_line(
        "markers", "real: needs other processes, a browser, Redis, trained weights or much time; runs in `make test-real` only"
    )
    config.addinivalue_line("markers", "slow: shows at length what quicker tests show, too; runs in `make test-slow` only")
    config.addinivalue_line("markers", "together: the tests of this module share a server, so one process runs them all")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compiles a share of the test modules, so that the processes do not each compile all of them when they collect tests.

    pytest rewrites `assert` in each module first, which takes half a minute for all.
    """
    worker: dict[str, Any] = getattr(session.config, "workerinput", {})
    if not worker or sys.dont_write_bytecode:
        return
    index, state = int(worker["workerid"].removeprefix("gw")), session.config.stash[rewrite.assertstate_key]
    for module in sorted((_ROOT / "tests").rglob("test_*.py"))[index :: worker["workercount"]]:
        folder = rewrite.get_cache_dir(module)
        folder.mkdir(parents=True, exist_ok=True)
        compiled = folder / (module.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(module, compiled, state.trace) is None:
            stat, code = rewrite._rewrite_test(module, session.config)
            rewrite._write_pyc(state, code, stat, compiled)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Returns two processes for each core."""
    return min(_MAX_PROCESSES, 2 * len(os.sched_getaffinity(0)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the folders of long tests first, and skips what a compiled engine does not allow."""
    made = list((_ROOT / "dyorc" / "engine").rglob("*.so"))
    if made:
        _check_newer(made)
        for item in items:
            if item.get_closest_marker("pure") is not None:
                item.add_marker(pytest.mark.skip(reason="the engine is compiled"))
    items.sort(key=lambda item: _LONGEST_FIRST.index(item.path.relative_to(_ROOT).parts[1]))


def _check_newer(made: list[Path]) -> None:
    sources = (_ROOT / "dyorc" / "engine").rglob("*.py")
    if max(source.stat().st_mtime for source in sources) > min(one.stat().st_mtime for one in made):
        pytest.exit("the compiled engine is older than its source: `make compile` again, or `make pure`", returncode=1)


def pytest_collection_finish() -> None:
    """Exempts all modules and tests from garbage collection: they stay, and thousands of tests collect what they have left."""
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Hands out tests one by one, but keeps tests together that share something of their module.

    The controller knows tests by their names only. (xdist's own `--dist loadgroup` writes marks into the names, which pytest 9
    no longer allows.)
    """
    config.option.loadscopereorder = False
    return _Scheduling(config, log)


class _Scheduling(LoadScopeScheduling):
    """Tests of one scope run in one process, one after another."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._ray_modules: list[str] = []

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        text = _text_of(module)
        if _RAY in text:
            if module not in self._ray_modules:
                self._ray_modules.append(module)
            return f"ray {self._ray_modules.index(module) % _NUM_RAYS}"
        return module if any(sign in text for sign in _TOGETHER) else nodeid

    def _reschedule(self, node: WorkerController) -> None:
        """Gives a process two tests or more, or says that there are no more.

        A process begins a test when it knows the next one. xdist hands one to a process that replaces a crashed one, and waits
        for its end before it hands out another: without this the run never ends.
        """
        super()._reschedule(node)
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)
        if not self.workqueue and not node.shutting_down:
            node.shutdown()

    def remove_node(self, node: WorkerController) -> str | None:
        """Returns the test that ran when the process crashed, and hands out the others again: xdist would run it again, too."""
        workload = self.assigned_work.pop(node)
        left = [(unit, test) for unit in workload.values() for test, is_over in unit.items() if not is_over]
        if not left:
            return None
        unit, crashed = left[0]
        unit[crashed] = True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in self.nodes:
            self._reschedule(other)
        return crashed


@functools.cache
def _text_of(module: str) -> str:
    return (_ROOT / module).read_text()


@pytest.fixture(scope="session", autouse=True)
def temporary_folder() -> Generator[None]:
    """Puts temporary files of this process, and of all that it starts, into a separate folder.

    So a leak is found by the process whose test caused it, and not by another that looks at the same moment.
    """
    # Short: the path of a Unix socket has at most 107 characters.
    folder = tempfile.mkdtemp(prefix="w-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)
