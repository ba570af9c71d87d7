"""Fuzzes the targets by turns with Atheris: ``python -m tests.fuzz --minutes 10 [--target NAME]``. The last line is JSON.

Each has the same time and starts from its seeds, from what is kept in `corpus`, and from what earlier runs have left in
``build/fuzz/NAME/corpus``. An input that breaks the contract ends its target's turn, and stays in ``build/fuzz/NAME``.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.entry_points import NAMES
from tests.fuzz.mutations import MAX_BYTES

_BUILD = Path("build/fuzz")
_OPTIONS = (f"-max_len={MAX_BYTES}", "-rss_limit_mb=2048", "-timeout=20", "-print_final_stats=1", "-verbosity=1")
_COVERAGE = re.compile(r"cov: (\d+) ft: (\d+)")
_EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_GRACE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTurn:
    """What came of one target's turn.

    Attributes:
        coverage: Branches of our code that inputs reached, as Atheris counts.
        finding: The file with the input that broke the contract; empty: none did.
        was_cut_off: Whether it did not end in time and was killed, as on a machine with too much to do: then its inputs are not
            counted.
    """

    target: str
    num_executions: int
    executions_per_s: float
    coverage: int
    finding: str
    was_cut_off: bool


def take_turn(name: str, seconds: int) -> FuzzTurn:
    """Fuzzes one target."""
    folder = _BUILD / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    command = [sys.executable, "-m", "tests.fuzz.one_target", name, str(corpus), *_OPTIONS]
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"-max_total_time={seconds}", f"-artifact_prefix={folder}/"], stdout=output, stderr=output
        )
        try:
            process.wait(seconds + _GRACE_S)
            was_cut_off = False
        except subprocess.TimeoutExpired:
            was_cut_off = True
        finally:
            process.kill()
            process.wait()
    text = log.read_text(errors="replace")
    executions, coverage = _EXECUTIONS.findall(text), _COVERAGE.findall(text)
    findings = [path for path in set(folder.iterdir()) - before if path.name.startswith(("crash-", "timeout-", "oom-"))]
    if process.returncode and not findings and not was_cut_off:
        raise RuntimeError(f"fuzzing {name} failed, see {log}: {text[-500:]}")
    number = int(executions[-1]) if executions else 0
    return FuzzTurn(
        target=name,
        num_executions=number,
        executions_per_s=round(number / seconds, 1),
        coverage=int(coverage[-1][0]) if coverage else 0,
        finding=str(findings[0]) if findings else "",
        was_cut_off=was_cut_off,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 1 if an input broke a contract, or a turn did not end in time."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes all places where bytes come in.")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--target", choices=NAMES, help="only this one")
    options = parser.parse_args(arguments)
    if find_spec("atheris") is None:
        parser.error("Atheris is not installed: make fuzz installs it, where it can be installed")
    names = [options.target] if options.target else list(NAMES)
    turns: list[FuzzTurn] = []
    for name in names:
        turn = take_turn(name, max(1, round(60 * options.minutes / len(names))))
        turns.append(turn)
        print(
            f"{name:26} {turn.num_executions:>10,} inputs {turn.executions_per_s:>8,.0f}/s  {turn.coverage:>6,} branches  "
            f"{turn.finding or ('did not end in time' if turn.was_cut_off else 'nothing found')}",
            flush=True,
        )
    print(json.dumps({"minutes": options.minutes, "turns": [asdict(turn) for turn in turns]}))
    return int(any(turn.finding or turn.was_cut_off for turn in turns))


if __name__ == "__main__":
    sys.exit(main())
