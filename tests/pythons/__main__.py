"""`python -m tests.pythons [--write docs/testing/pythons.md] [--without-ray] PYTHON ...`

Installs the core on each of these Pythons, in an environment of its own, and tries it there: imports all, runs the tests that
need
neither torch nor Ray, and uses it as a user does (`tests/pythons/smoke.py`). Prints one JSON object as the last line of stdout.
Exits with 1 if a step fails, or if there was no Python but 3.11, which `make test` has. Only the standard library.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.output_paths import output_file

_ROOT = Path(__file__).parents[2]
_TOOLS = ("pytest==9.*", "pytest-timeout>=2.4", "pytest-xdist>=3.6", "hypothesis>=6.100", "psutil>=5.9", "pyyaml>=6")
_RAY = "ray[serve]==2.60.*"
_STEPS = ("install", "import", "tests", "run", "cell", "ray")
_TIMEOUT_S = 1800.0
_FOLDERS = (
    "unit/authoring", "unit/cells", "unit/client", "unit/deployment", "unit/engine", "unit/gateway", "unit/orchestrator",
    "unit/replica", "unit/scaling", "unit/server", "unit/telemetry", "unit/transport", "unit/test_crash_attribution.py",
    "unit/test_run.py", "unit/test_supervision.py", "unit/test_tenant_table.py", "unit/test_user_code.py",
    "property/test_arena.py", "property/test_stored_columns.py", "property/test_tensor_wire.py",
    "property/test_unix_framing.py", "property/test_views.py",
    "property/test_wire.py",
)  # fmt: skip
_NOT_INSTALLED = re.compile(r"^(?:import|from) (?:torch|ray|scipy)\b", re.MULTILINE)
_WITH_RAY = "unit/scaling/test_autoscaling.py"
"""Imports it by way of the benchmarks."""


class Attempt(NamedTuple):
    """What came of a step.

    Attributes:
        is_passed: Whether it worked; None if it was not tried.
        detail: What it says of itself: counts, times, the last line of an error.
    """

    is_passed: bool | None
    detail: str = ""


def main() -> int:
    """Tries all Pythons and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--write", type=output_file, help="write the table to this Markdown file")
    parser.add_argument("--without-ray", action="store_true", help="do not install Ray, which takes 300 MB for each Python")
    arguments = parser.parse_args()
    pythons: dict[str, str] = {}
    missing: list[str] = []
    for name in arguments.pythons:
        version = _version_of(name)
        if version is None:
            missing.append(name)
        else:
            pythons.setdefault(version, name)
    table: dict[str, dict[str, Attempt]] = {}
    with tempfile.TemporaryDirectory(prefix="pythons-") as folder:
        wheel = _build(Path(folder)) if pythons else Path()
        for version, name in sorted(pythons.items()):
            table[version] = _try(name, Path(folder, version), wheel, with_ray=not arguments.without_ray)
    if arguments.write is not None:
        arguments.write.write_text(_page(table, missing))
    failed = [
        f"{version} {step}" for version, steps in table.items() for step, attempt in steps.items() if attempt.is_passed is False
    ]
    others = [version for version in table if not version.startswith("3.11.")]
    print(json.dumps({"pythons": table, "missing": missing, "failed": failed}))
    if not others:
        print(f"there is no Python but 3.11: none of {', '.join(missing) or 'those named'} is here", file=sys.stderr)
    return 1 if failed or not others else 0


def _version_of(python: str) -> str | None:
    """Returns the version of a command, with a t if it has no global lock; None if there is no such command."""
    code = "import sys, sysconfig; print(sys.version.split()[0] + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _build(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", folder / "build"], check=True)
    command = [folder / "build/bin/python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "wheel", _ROOT]
    subprocess.run(command, check=True, env={**os.environ, "DYORC_COMPILE": "0"})
    (wheel,) = (folder / "wheel").glob("*.whl")
    return wheel


def _try(name: str, folder: Path, wheel: Path, *, with_ray: bool) -> dict[str, Attempt]:
    """Tries all steps on one Python; what needs a step that failed is not tried. Removes the environment afterwards."""
    python = str(folder / "bin/python")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    tests = [f"tests/{each}" for each in _FOLDERS]
    left_out = [f"--ignore={each}" for each in (f"tests/{_WITH_RAY}", *_files_with_libraries())]
    pytest = (python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-m", "not real and not slow", *left_out, *tests)
    attempts: dict[str, Attempt] = dict.fromkeys(_STEPS, Attempt(None))
    attempts["install"] = _command(name, "-m", "venv", str(folder))
    if attempts["install"].is_passed:
        attempts["install"] = _command(*pip, "--only-binary", ":all:", str(wheel), *_TOOLS)
    if attempts["install"].is_passed:
        attempts["import"] = _command(python, "-m", "tests.pythons.smoke", "import")
        attempts["tests"] = _command(*pytest)
        for step in ("run", "cell"):
            attempts[step] = _command(python, "-m", "tests.pythons.smoke", step)
        if with_ray:
            attempts["ray"] = _command(*pip, "--only-binary", ":all:", _RAY)
            if attempts["ray"].is_passed:
                attempts["ray"] = _command(python, "-m", "tests.pythons.smoke", "ray")
    shutil.rmtree(folder, ignore_errors=True)
    return attempts


def _files_with_libraries() -> list[str]:
    """Returns the tests' files that import a library which is not installed here."""
    tests = _ROOT / "tests"
    files = [file for folder in _FOLDERS for file in tests.joinpath(folder).rglob("*.py")]
    return sorted(str(file.relative_to(_ROOT)) for file in files if _NOT_INSTALLED.search(file.read_text()))


def _command(*command: str) -> Attempt:
    """Runs a command to its end, and shows its output if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}
    started_s = time.monotonic()
    print("$", *command, file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            command,
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Attempt(False, f"not done after {_TIMEOUT_S:.0f} s")
    took = f"{time.monotonic() - started_s:.0f} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr, flush=True)
        return Attempt(False, lines[-1][:200] if lines else f"exit code {done.returncode}")
    counts = next((line.strip("= ") for line in reversed(lines) if " passed" in line), "")
    return Attempt(True, counts or took)


_PAGE = """# Pythons

`make test-pythons` installs `dyorc-core` on each Python that it finds, in an environment of its own, from wheels only, and tries
it there. It wrote this page on {system}.

| Python | install | import, warnings as errors | unit tests | `dyorc.run` | a cell | replicas on Ray |
|---|---|---|---|---|---|---|
{rows}

{missing}The cell answers over HTTP and gRPC, stores a job, and loads a second version. The unit tests are those that need neither
torch nor Ray. Python 3.11 is what `make test` and `make test-real` run on, with torch, Ray and Redis. On the others, torch, the
planner and the examples are not run: programs here use NumPy, on Ray too.

## Pythons without the global lock

A cell does not run on 3.14t or 3.13t from wheels: see [the decision](../decisions/0089-pythons-and-systems.md).

## Other systems

Linux is what DyOrc is made for. **It has not been run on a Mac.** What is checked: the code's names, as macOS's Python has them
(`make lint-macos`); and that every module is imported, `dyorc.run` works, and `dyorc serve --in-process` and `dyorc dev`
answer with tensors of 8 MB, where the names that only Linux has are deleted, `/proc`, `/dev/shm` and `/sys` are empty, and
`sys.platform` is `darwin`
(`tests/integration/other_systems`). What needs Linux says so: replicas on Ray, several cells or gateways on one port, gateways
apart from orchestrators, plans over several processes, shared memory of clients.
On macOS, a cell's tensors lie in a file of the temporary folder, whose room is kept until the server ends.
Under Windows, use WSL2: `import dyorc` says so.
"""


def _page(table: dict[str, dict[str, Attempt]], missing: list[str]) -> str:
    rows = [
        "| " + " | ".join([version, *(_cell(attempts[step]) for step in _STEPS)]) + " |" for version, attempts in table.items()
    ]
    text = f"Not found on this machine, so not tried: {', '.join(missing)}.\n\n" if missing else ""
    return _PAGE.format(system=f"{platform.system()} {platform.machine()}", rows="\n".join(rows), missing=text)


def _cell(attempt: Attempt) -> str:
    mark = {True: "works", False: "**fails**", None: "not run"}[attempt.is_passed]
    return f"{mark}: {attempt.detail}" if attempt.detail else mark


if __name__ == "__main__":
    sys.exit(main())
