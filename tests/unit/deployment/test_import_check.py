"""Targets that are tried in a process of their own."""

import os
from pathlib import Path

import psutil
import pytest

from dyorc.deployment.import_check import check_import
from dyorc.errors import ModuleImportError
from tests.deadlines import wait_until

pytestmark = pytest.mark.anyio

_APP = """
import numpy as np
from jaxtyping import Float
import dyorc

Vectors = Float[np.ndarray, "batch n"]

@dyorc.program
def double(x: Vectors) -> Vectors:
    return 2 * x

@dyorc.workflow
async def flow(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return double(x)
"""


async def test_a_target_that_can_be_loaded_comes_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(_APP + "\nprint('hello')\n")
    found = await check_import(f"{tmp_path}/app.py:flow", 60)
    assert (found.model, found.programs) == ("flow", ("double",))
    assert found.bundle is not None
    assert list(found.bundle.modules) == ["app"]


@pytest.mark.parametrize(
    ("code", "text", "line"),
    [
        ("x = (", r"app\.py cannot be imported: SyntaxError: .* \(app\.py, line 1\)", "x = ("),
        ("import dyorc\nx = 1 / 0", r"ZeroDivisionError: division by zero \(app\.py, line 2\)", "x = 1 / 0"),
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'", "import nothing_of_this_name"),
        (_APP.replace("async def flow", "async def flaw"), r"has no workflow or program 'flow'; it has \['double', 'flaw'\]", ""),
        (_APP.replace('flow(x: Float[np.ndarray, "n"])', "flow(x)"), "flow", ""),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV", ""),
        ("import os\nos._exit(3)", "ended with exit code 3", ""),
        ("raise SystemExit('not today')", "SystemExit: not today", "not today"),
        ("while True: pass", "has taken more than", ""),
    ],
    ids=["syntax", "exception", "import", "name", "signature", "crash", "exit", "SystemExit", "loop"],
)
async def test_one_that_cannot_says_why_and_shows_the_users_lines(tmp_path: Path, code: str, text: str, line: str) -> None:
    (tmp_path / "app.py").write_text(code)
    with pytest.raises(ModuleImportError, match=text) as caught:
        await check_import(f"{tmp_path}/app.py:flow", 4 if "while" in code else 60)
    assert line in caught.value.user_traceback


async def test_only_the_process_that_was_started_answers_if_the_code_forks(tmp_path: Path) -> None:
    waits = "import os\nif child := os.fork():\n    os.waitpid(child, 0)\n"
    (tmp_path / "app.py").write_text(f"{waits}{_APP}")
    probe = await check_import(f"{tmp_path}/app.py:flow", 60)
    assert probe.model == "flow"


async def test_a_result_that_the_code_has_written_over_is_named(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import os, sys\nos.write(int(sys.argv[2]), b'hello')\n" + _APP)
    with pytest.raises(
        ModuleImportError, match=r"cannot be loaded: the process .* exit code 0, and wrote no result that can be read"
    ):
        await check_import(f"{tmp_path}/app.py:flow", 60)


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModuleImportError, match=r"there is no file .*/missing\.py"):
        await check_import(f"{tmp_path}/missing.py:flow", 60)


async def test_code_of_megabytes_is_loaded_however_much_it_prints(tmp_path: Path) -> None:
    text = f"{_APP}\nimport sys\nsys.stderr.write('x' * 2_000_000)\n{'# much text' * 200_000}\n"
    (tmp_path / "app.py").write_text(text)
    probe = await check_import(f"{tmp_path}/app.py:flow", 60)
    assert probe.bundle is not None
    assert len(probe.bundle.modules["app"].text) == len(text)


async def test_an_import_gives_way_to_the_server(tmp_path: Path) -> None:
    code = """
import os, pathlib
group = pathlib.Path("/proc/self/autogroup")
text = group.read_text() if group.exists() else ""
pathlib.Path(NOTE).write_text(f"{os.getpriority(os.PRIO_PROCESS, 0)} {text}")
"""
    (tmp_path / "app.py").write_text(_APP + code.replace("NOTE", repr(str(tmp_path / "note"))))
    await check_import(f"{tmp_path}/app.py:flow", 60)
    niceness, *group = (tmp_path / "note").read_text().split()
    assert int(niceness) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)
    if group:  # Linux may schedule sessions as groups: niceness counts only within one
        assert group[-1] == "5"


async def test_what_an_import_has_started_ends_with_it(tmp_path: Path) -> None:
    started = "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    note = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
    (tmp_path / "app.py").write_text(_APP + started + note)
    probe = await check_import(f"{tmp_path}/app.py:flow", 60)
    assert probe.model == "flow"
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "the child has ended")
