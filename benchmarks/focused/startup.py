"""How long servers of one, twenty and two hundred programs take to start, and how long as many take to be deployed.

    python -m benchmarks.focused.startup [--systems cell,cells_2,ray,deploy] [--programs 1,20,200] [--rounds 3]

One file has all programs, small NumPy classes with weights of their own, and a workflow that picks one of them. By system:

    cell      `dyorc serve FILE:flow --in-process`
    cells_2   the same with `--cells 2`
    ray       `dyorc serve FILE:flow`: each program has a replica in a process of its own. Not by default: they take a minute
    deploy    `dyorc deploy FILE:flow` to a cell that serves another workflow

Seconds from when the command is started: ``listening_s`` until the server takes requests, ``ready_s`` until all programs are
loaded, ``first_answer_s`` until the first request after that has its answer; for ``deploy``, ``deployed_s`` until the command
has ended. ``cpu_s`` is the processor time that all processes of the server have used by then, which another load on the machine
changes least. Systems and numbers take turns. Progress goes to stderr; the last line of stdout is one JSON object with the
medians of the rounds, by system and number of programs.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.serving import ROOT
from dyorc.client import Client
from dyorc.testing import ServerProcess

_COMMAND = [sys.executable, "-m", "dyorc.cli.main"]
_SYSTEMS: Mapping[str, list[str]] = {
    "cell": ["--in-process"],
    "cells_2": ["--in-process", "--cells", "2"],
    "ray": [],
    "deploy": ["--in-process"],
}
_TIMEOUT_S = 900.0
_WIDTH = 16

_PROGRAM = """
@dyorc.program(max_batch_size=8)
class Scores{number}:
    def __init__(self):
        self.weights = np.random.default_rng({number}).normal(size=(16, 4)).astype(np.float32)

    def __call__(self, image: Float32[np.ndarray, "batch 16"]) -> Float32[np.ndarray, "batch 4"]:
        return image @ self.weights

scores{number} = Scores{number}()
"""


def write_programs(file: Path, num_programs: int, workflow: str = "flow") -> None:
    """Writes a module with so many programs, and a workflow that picks one of them by its parameter `number`."""
    listed = ", ".join(f"scores{number}" for number in range(num_programs))
    programs = "".join(_PROGRAM.format(number=number) for number in range(num_programs))
    file.write_text(
        f"import dyorc\nimport numpy as np\nfrom jaxtyping import Float32\n{programs}\nPROGRAMS = [{listed}]\n\n"
        f"@dyorc.workflow\nasync def {workflow}(image: Float32[np.ndarray, '{_WIDTH}'], number: int = 0) "
        "-> Float32[np.ndarray, '4']:\n    return PROGRAMS[number](image)\n"
    )


def main() -> None:
    """Measures, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="cell,cells_2,deploy", help=f"some of {','.join(_SYSTEMS)}")
    parser.add_argument("--programs", default="1,20,200", help="numbers of programs")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    systems, numbers = options.systems.split(","), [int(number) for number in options.programs.split(",")]
    if unknown := set(systems) - set(_SYSTEMS):
        parser.error(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(_SYSTEMS)}")
    rounds: dict[tuple[str, int], list[Mapping[str, float]]] = {}
    for number in range(1, options.rounds + 1):
        for num_programs in numbers:
            for system in systems:
                figures = _measure(system, num_programs)
                rounds.setdefault((system, num_programs), []).append(figures)
                shown = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
                print(f"round {number}  {system:<8} {num_programs:>4} programs: {shown}", file=sys.stderr, flush=True)
    print(json.dumps({name: {str(num): _medians(rounds[name, num]) for num in numbers} for name in systems}))


def _measure(system: str, num_programs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="dyorc-startup-") as folder:
        file, other = Path(folder) / "app.py", Path(folder) / "other.py"
        write_programs(file, num_programs)
        write_programs(other, 1, "other")
        is_deploy = system == "deploy"
        target = f"{other}:other" if is_deploy else f"{file}:flow"
        command = [*_COMMAND, "serve", target, "--port", "0", *_SYSTEMS[system]]
        environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
        started_s = time.monotonic()
        with ServerProcess(command, environment=environment, folder=ROOT) as server:
            figures: dict[str, float] = {}
            url = server.url
            figures["listening_s"] = time.monotonic() - started_s
            server.wait_until_ready(_TIMEOUT_S)
            figures["ready_s"] = time.monotonic() - started_s
            if is_deploy:
                before_s, started_s = _cpu_s(server.pids()), time.monotonic()
                subprocess.run([*_COMMAND, "deploy", f"{file}:flow", "--url", url], check=True, stdout=subprocess.DEVNULL)
                figures = {"deployed_s": time.monotonic() - started_s, "cpu_s": _cpu_s(server.pids()) - before_s}
            else:
                figures["cpu_s"] = _cpu_s(server.pids())
            _ask(url, num_programs)
            figures["first_answer_s"] = time.monotonic() - started_s
            server.stop()
    return figures


def _ask(url: str, num_programs: int) -> None:
    """Sends one request to the last program, and checks its answer."""
    image = np.ones(_WIDTH, np.float32)
    with Client(url) as client:
        answer = client.infer("flow", image=image, number=num_programs - 1)
    right = image @ np.random.default_rng(num_programs - 1).normal(size=(_WIDTH, 4)).astype(np.float32)
    if not np.allclose(answer, right, rtol=1e-5, atol=1e-5):
        sys.exit(f"error: the answer is {answer}, expected {right}")


def _cpu_s(pids: Iterable[int]) -> float:
    """Returns the processor time that processes have used, with that of their children that have ended."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _medians(rounds: list[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(figures[name] for figures in rounds), 2) for name in rounds[0]}


if __name__ == "__main__":
    main()
