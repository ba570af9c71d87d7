"""A server of many programs: what it does when it starts, and when as many are deployed, grows as their number does.

Counted in calls of functions on the event loop's thread, which do not depend on how busy the machine is. Between two numbers of
programs, each further program has to cost about the same; if each looked at all others, it would cost twice as much.
"""

import asyncio
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from rich.console import Console

from benchmarks.focused.startup import write_programs
from dyorc.authoring import bundle_imports
from dyorc.authoring.bundle_imports import BundleImporter, compile_ahead
from dyorc.authoring.bundles import Bundle
from dyorc.authoring.fingerprints import Fingerprints
from dyorc.authoring.loading import programs_of
from dyorc.client import Client
from dyorc.config import GatewayConfig, Settings, TelemetryConfig
from dyorc.errors import ModuleImportError
from dyorc.models.status import ProgramState, StatusBoard
from dyorc.server.loading_progress import show_progress
from dyorc.server.running_server import RunningServer
from dyorc.server.single_process import serve_embedded
from tests.shared_folders import arena_folder
from tests.workflows.arithmetic import double

_NUMBERS = (20, 120, 220)
_MOST_GROWTH = 1.2
"""By how much more each further program may cost. What the server does by the clock is counted, too."""

_modules = itertools.count()


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)


def _write(folder: Path, num_programs: int) -> str:
    """Returns a target with so many programs, whose module no other has the name of."""
    number = next(_modules)
    file = folder / f"many_programs_{number}.py"
    write_programs(file, num_programs, f"flow{number}")
    return f"{file}:flow{number}"


def _bundle(target: str) -> Bundle:
    file = Path(target.rpartition(":")[0])
    return Bundle.of(target, file.stem, str(file.parent))


def _settings(folder: Path) -> Settings:
    settings = Settings(
        store=f"sqlite://{folder}/store.db", gateway=GatewayConfig(port=0, grpc=False), telemetry=TelemetryConfig(metrics=False)
    )
    return settings.model_copy(update={"transport": settings.transport.model_copy(update={"arena_folder": arena_folder()})})


def _num_calls(run: Callable[[], Coroutine[Any, Any, object]]) -> int:
    """Returns how many functions this thread calls meanwhile. cProfile would count for less, but hung once for minutes."""
    num_calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        asyncio.run(run())
    finally:
        sys.setprofile(None)
    return num_calls


def _growth(counts: dict[int, int]) -> float:
    """Returns how much more each program costs between the larger two numbers than between the smaller two."""
    (few, fewer_calls), (some, calls), (many, more_calls) = sorted(counts.items())
    return (more_calls - calls) / (many - some) / ((calls - fewer_calls) / (some - few))


async def _until_shown(server: RunningServer) -> str:
    output = io.StringIO()
    await show_progress(Console(file=output, width=200), server.status, server.wait_until_ready())
    return output.getvalue()


async def _start(folder: Path, num_programs: int) -> None:
    target = _write(folder, num_programs)
    async with serve_embedded([target], _settings(folder), without_ray=True) as server:
        shown = await _until_shown(server)
        assert shown.count(": ready") == num_programs
        assert all(status.state is ProgramState.READY for status in server.status.programs.values())


async def _deploy(folder: Path, num_programs: int) -> None:
    first, target = _write(folder, 1), _write(folder, num_programs)
    async with serve_embedded([first], _settings(folder), without_ray=True) as server:
        await _until_shown(server)

        def ask() -> None:
            with Client(server.url) as client:
                client.deploy(target)

        await asyncio.to_thread(ask)
        assert len(server.status.programs) == 1 + num_programs


_ACTIONS = {"start": _start, "deploy": _deploy}


def _counts(action: str, folder: Path) -> dict[int, int]:
    """Returns the calls of an action for each number of programs, after one for what is done once in a process."""
    run = _ACTIONS[action]
    asyncio.run(run(folder, 1))
    return {number: _num_calls(lambda number=number: run(folder, number)) for number in _NUMBERS}


@pytest.mark.parametrize("action", _ACTIONS)
def test_each_program_costs_as_much_as_the_first(action: str, tmp_path: Path) -> None:
    # In a process of its own: Python 3.11 hangs in the first call after `sys.setprofile` while an exception that was sent to
    # another thread waits for that thread. Tests of programs that hang leave such threads.
    command = [sys.executable, "-m", __name__, action, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    counts = {int(number): num_calls for number, num_calls in json.loads(done.stdout.splitlines()[-1]).items()}
    assert _growth(counts) < _MOST_GROWTH, counts


def test_programs_of_one_module_read_it_once(tmp_path: Path) -> None:
    target = _write(tmp_path, 40)
    bundle = _bundle(target)
    importer = BundleImporter(bundle, bundle_imports.new_package())
    workflow = importer.load()
    read: list[str] = []
    fingerprints = Fingerprints(bundle, lambda name: read.append(name) or importer.module(name), importer.own_name)
    prints = {program.name: fingerprints.of(program, program.name) for program in programs_of(workflow)}
    importer.unload()
    assert len(set(prints.values()) - {None}) == 40, "each has its own"
    assert len(read) == 1


def test_replicas_of_one_file_compile_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = _bundle(_write(tmp_path, 3))
    compiled: list[str] = []

    def count(text: str, path: str, mode: str, *, dont_inherit: bool) -> CodeType:
        compiled.append(path)
        return compile(text, path, mode, dont_inherit=dont_inherit)

    monkeypatch.setattr(bundle_imports, "compile", count, raising=False)
    for _ in range(3):
        compile_ahead(bundle)
        importer = BundleImporter(bundle, bundle_imports.new_package())
        assert len(programs_of(importer.load())) == 3
        importer.unload()
    assert compiled == [bundle.modules[bundle.main].path]


def test_code_that_is_no_python_fails_where_it_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "no_python_at_all.py"
    file.write_text("this is no Python")
    bundle = _bundle(f"{file}:flow")
    compile_ahead(bundle)
    with pytest.raises(ModuleImportError, match=f"{file.name} cannot be imported: SyntaxError"):
        BundleImporter(bundle, bundle_imports.new_package()).load()


def test_changes_are_told_apart_by_their_number() -> None:
    first, second = double.with_options(name="first"), double.with_options(name="second")
    board = StatusBoard([first, second])
    number, names = board.changed_since(0)
    assert names == ["first", "second"]
    assert board.changed_since(number) == (number, [])
    board.loading("second")
    board.loading("first")
    board.load_failed("second", "no weights")
    assert board.changed_since(number)[1] == ["first", "second"]
    board.remove("first")
    assert board.changed_since(number)[1] == ["second"]


if __name__ == "__main__":
    print(json.dumps(_counts(sys.argv[1], Path(sys.argv[2]))))
