"""Arenas of killed owners are swept, and nothing else is. A killed reader leaves no trace."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import dyorc
from dyorc.transport.arena import Arena
from dyorc.transport.arena_file import sweep
from dyorc.transport.arena_views import ArenaView
from tests.leaks import no_leaks
from tests.unit.transport.arena_blocks import SIZE_BYTES, put, read

ROOT = Path(dyorc.__file__).parents[1]


_CREATE = """
import fcntl, mmap, os, signal, sys
from dyorc.transport import arena
folder, module, step, kind = sys.argv[1:]
real_open = os.open

def open_as_told(path, flags, *mode, **others):
    if kind == "named" and flags & os.O_TMPFILE == os.O_TMPFILE:
        raise OSError(95, "no nameless files")
    found = real_open(path, flags, *mode, **others)
    if step == "open" and (flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE):
        os.kill(os.getpid(), signal.SIGKILL)
    return found

os.open = open_as_told
if step not in ("open", "none"):
    owner = {"os": os, "fcntl": fcntl, "mmap": mmap}[module]
    real = getattr(owner, step)

    def then_die(*positional, **named):
        real(*positional, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, step, then_die)
with arena.Arena(folder, 2**20) as owned:
    block = owned.allocate(5)
    block.memory[:] = b"bytes"
    owned.publish(block)
    print(owned.name, block.block_id, block.offset, flush=True)
    sys.stdin.readline()
"""

_READ = """
import sys
import numpy as np
from dyorc.transport.arena_views import ArenaView
folder, name, block_id, offset, num_bytes = sys.argv[1:]
view = ArenaView(folder, name)
array = np.frombuffer(view.writable(int(block_id), int(offset), int(num_bytes)), np.uint8)
array[:] = 0
print("read", flush=True)
sys.stdin.readline()
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def end(process: subprocess.Popen[str]) -> int:
    """Kills a process that is still running. Returns its exit status."""
    with process:
        process.kill()
    return process.returncode


@pytest.mark.parametrize("kind", ["nameless", "named"])
def test_a_living_owner_is_left_alone_and_a_killed_one_is_swept(folder: str, kind: str) -> None:
    process = start(_CREATE, folder, "", "none", kind)
    try:
        name, block_id, offset = line_of(process).split()
        assert os.listdir(folder) == [name]
        assert sweep(folder) == []
        view = ArenaView(folder, name)
        assert bytes(view.read_only(int(block_id), int(offset), 5)) == b"bytes"
    finally:
        assert end(process) == -signal.SIGKILL
    assert os.listdir(folder) == [name]
    assert bytes(view.read_only(int(block_id), int(offset), 5)) == b"bytes"  # mapped memory stays readable
    view.close()
    assert sweep(folder) == [name]
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("module", "step", "kind", "is_left"),
    [
        ("os", "open", "nameless", False),
        ("fcntl", "flock", "nameless", False),
        ("os", "ftruncate", "nameless", False),
        ("os", "pwrite", "nameless", False),
        ("os", "link", "nameless", True),
        ("mmap", "mmap", "nameless", True),
        ("os", "open", "named", True),
        ("fcntl", "flock", "named", True),
        ("os", "pwrite", "named", True),
        ("os", "rename", "named", True),
    ],
)
def test_an_owner_killed_while_it_creates_leaves_only_what_is_swept(
    folder: str, module: str, step: str, kind: str, is_left: bool
) -> None:
    process = start(_CREATE, folder, module, step, kind)
    with process:
        assert line_of(process) == ""
    assert process.returncode == -signal.SIGKILL
    assert len(os.listdir(folder)) == is_left
    assert len(sweep(folder)) == is_left
    assert os.listdir(folder) == []


def test_opening_an_arena_sweeps_its_folder(folder: str) -> None:
    with start(_CREATE, folder, "os", "link", "nameless"):
        pass
    assert len(os.listdir(folder)) == 1
    with Arena(folder, SIZE_BYTES) as arena:
        assert os.listdir(folder) == [arena.name]


@pytest.mark.parametrize("kind", ["nameless", "named"])
@pytest.mark.parametrize("step", ["flock before", "flock", "ftruncate", "posix_fallocate", "pwrite", "rename"])
def test_sweeps_do_not_disturb_an_arena_that_is_being_created(
    folder: str, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    real_open = os.open
    if kind == "named":

        def open_named(path: Any, flags: int, *mode: int, **others: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "no nameless files")
            return real_open(path, flags, *mode, **others)

        monkeypatch.setattr(os, "open", open_named)
    owner: Any = fcntl if "flock" in step else os
    name = step.split()[0]
    real = getattr(owner, name)
    swept: list[list[str]] = []

    def and_sweep(*arguments: Any) -> Any:
        monkeypatch.setattr(owner, name, real)  # sweeps only once
        if step == "flock before":
            swept.append(sweep(folder))
        result = real(*arguments)
        swept.append(sweep(folder))
        return result

    monkeypatch.setattr(owner, name, and_sweep)
    with no_leaks(), Arena(folder, SIZE_BYTES) as arena:
        assert swept or (kind, step) == ("nameless", "rename")
        assert os.listdir(folder) == [arena.name]
        view = ArenaView(folder, arena.name)
        assert read(view, put(arena, b"abc")) == b"abc"
        view.close()
        assert sweep(folder) == []
    assert os.listdir(folder) == []


def test_a_sweep_that_locks_a_new_file_makes_the_owner_create_another(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open, real_flock = os.open, fcntl.flock
    held: list[int] = []

    def open_named(path: Any, flags: int, *mode: int, **others: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no nameless files")
        found = real_open(path, flags, *mode, **others)
        if flags & os.O_EXCL and not held:
            held.append(real_open(path, os.O_RDONLY))
            real_flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        return found

    monkeypatch.setattr(os, "open", open_named)
    with Arena(folder, SIZE_BYTES) as arena:
        os.close(held[0])
        assert os.listdir(folder) == [arena.name]


def test_everything_but_our_own_orphans_is_left_alone(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = "dyorc-arena-0123456789abcdef"
    target = os.path.join(folder, "target")
    Path(target).write_text("precious")
    os.symlink("target", os.path.join(folder, "dyorc-arena-1111111111111111"))
    os.mkdir(os.path.join(folder, "dyorc-arena-2222222222222222"))
    os.mkfifo(os.path.join(folder, "dyorc-arena-3333333333333333"))
    Path(folder, "dyorc-arena-notes").write_text("precious")
    before = set(os.listdir(folder))
    Path(folder, orphan).touch()
    Path(folder, orphan + ".new").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert sweep(folder) == []
    assert sorted(sweep(folder)) == [orphan, orphan + ".new"]
    assert set(os.listdir(folder)) == before
    assert Path(target).read_text() == "precious"


def test_a_missing_folder_has_no_orphans(folder: str) -> None:
    assert sweep(f"{folder}/missing") == []


def test_concurrent_sweeps_remove_each_orphan_once(folder: str, arena: Arena) -> None:
    orphans = {f"dyorc-arena-{at:016x}" for at in range(100)}
    for name in orphans:
        Path(folder, name).touch()
    ready = threading.Barrier(4)
    removed: list[str] = []

    def work() -> None:
        ready.wait()
        removed.extend(sweep(folder))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(folder) == [arena.name]
    assert sorted(removed) == sorted(orphans)


def test_a_killed_reader_leaves_the_arena_as_it_was(folder: str, arena: Arena, view: ArenaView) -> None:
    block = put(arena, b"x" * 10_000)
    process = start(_READ, folder, arena.name, block.block_id, block.offset, block.num_bytes)
    try:
        assert line_of(process) == "read\n"
        assert read(view, block) == b"x" * 10_000
    finally:
        assert end(process) == -signal.SIGKILL
    assert read(view, block) == b"x" * 10_000
    assert arena.free(block.block_id)
    assert read(view, put(arena, b"new")) == b"new"
